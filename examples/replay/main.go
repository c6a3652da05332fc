// Replay runs the log of a real computing grid through simulated servers, behind a FIFO and behind
// queues that are fair by count and by time, and shows how long users wait.
//
//	go run ./examples/replay
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
)

//go:embed testdata/lcg-2005.csv.gz
var lcg []byte

// settings are the flags of the command line.
type settings struct {
	servers int // 0 for the least that can do the work in the log's time
	in      string
	svg     string
	quantum float64 // in mean run times
}

func main() {
	var s settings
	flag.IntVar(&s.servers, "servers", 1600, "how many servers; each runs one job at a time.\n"+
		"0 means the least that can do the work in the log's time")
	flag.StringVar(&s.in, "in", "",
		"replay this `file` instead of the built-in log: a CSV with the columns submit_s,user,run_s,\n"+
			"packed with gzip or not; every job takes one server")
	flag.StringVar(&s.svg, "svg", "replay.svg",
		"write the picture to this `file`; none for no picture")
	flag.Float64Var(&s.quantum, "quantum", 0.1,
		"how long a user's jobs may run in a round if run times are known, in mean run times of a job")
	flag.Parse()
	if err := run(s, os.Stdout); err != nil {
		log.Fatal("replay: ", err)
	}
}

func run(s settings, out io.Writer) error {
	if s.servers < 0 {
		return fmt.Errorf("-servers is %d; it must not be negative", s.servers)
	}
	if !(s.quantum >= 0.001 && s.quantum <= 1000) {
		return fmt.Errorf("-quantum is %v; the limits are 0.001 and 1000", s.quantum)
	}
	w, err := s.read()
	if err != nil {
		return err
	}
	if s.servers == 0 {
		s.servers = w.leastServers()
	}
	results, err := compare(w, s.servers, s.contenders(w))
	if err != nil {
		return err
	}
	if _, err := out.Write(report(w, s.servers, results)); err != nil || s.svg == "none" {
		return err
	}
	if err := os.WriteFile(s.svg, draw(w, s.servers, results), 0o644); err != nil {
		return fmt.Errorf("the picture: %w", err)
	}
	_, err = fmt.Fprintf(out, "\nThe picture is in %s; open it in a browser.\n", s.svg)
	return err
}

func (s *settings) read() (*workload, error) {
	if s.in == "" {
		return readWorkload(bytes.NewReader(lcg), "LCG grid, November 2005")
	}
	f, err := os.Open(s.in)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readWorkload(f, filepath.Base(s.in))
}

// compare runs the workload with each of the lines. Nothing else differs.
func compare(w *workload, servers int, lines []contender) ([]*result, error) {
	var results []*result
	for _, c := range lines {
		r := &result{c.name, make([][]float64, len(w.names))}
		if err := simulate(w.jobs, servers, c.line, r); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
	}
	return results, nil
}
