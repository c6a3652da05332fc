// Replay runs the log of a real computing grid through simulated servers, behind a FIFO and behind
// queues that are fair by count and by time, and shows how long users wait.
//
//	go run ./examples/replay
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

//go:embed testdata/lcg-2005.csv.gz
var lcg []byte

const lcgTitle = "LCG grid, November 2005"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 2 if the command line is wrong, 1 if anything else is.
func run(args []string, out, errOut io.Writer) int {
	var usage usageError
	err := command(args, out)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(errOut, "replay: %v (-h tells more)\n", err)
		return 2
	default:
		fmt.Fprintf(errOut, "replay: %v\n", err)
		return 1
	}
}

func command(args []string, out io.Writer) error {
	s, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	w, err := s.read()
	if err != nil {
		return err
	}
	if s.servers == 0 {
		if s.servers = w.leastServers(); s.servers == 0 {
			return usageError{
				errors.New("-servers auto: all jobs come in the same second, so the log has no length"),
			}
		}
	}
	results, err := compare(w, s.servers, s.contenders(w))
	if err != nil {
		return err
	}
	if _, err := out.Write(report(w, s.servers, results)); err != nil {
		return err
	}
	if s.svg == "" || s.svg == "none" {
		return nil
	}
	if err := os.WriteFile(s.svg, draw(w, s.servers, results), 0o644); err != nil {
		return fmt.Errorf("the picture: %w", err)
	}
	_, err = fmt.Fprintf(out, "\nThe picture is in %s; open it in a browser.\n", s.svg)
	return err
}

// usageError is a mistake in the command line.
type usageError struct{ error }

// settings are the values of the flags.
type settings struct {
	servers int // 0 for the least that can do the work in the log's time
	in      string
	svg     string
	quantum float64 // in mean run times
}

func parse(args []string, out io.Writer) (settings, error) {
	s := settings{servers: 1600, quantum: 0.1}
	f := flag.NewFlagSet("replay", flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints the error
	f.Func("servers",
		"number of servers, `n`, each of which runs one job at a time; auto for the least that can do\n"+
			"the work in the log's time (default 1600)", s.setServers)
	f.StringVar(&s.in, "in", "",
		"replay this `file` instead of the built-in log: a CSV with the columns submit_s,user,run_s,\n"+
			"packed with gzip or not; every job takes one server")
	f.StringVar(&s.svg, "svg", "replay.svg", "write the picture to this `file`; none for no picture")
	f.Func("quantum",
		"how long a user's jobs may run in a round if run times are known, `x` times the\n"+
			"mean run time of a job (default 0.1)", s.setQuantum)
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(out,
			"Replay runs a log of jobs through simulated servers, with a FIFO in front of them and with\n"+
				"queues that are fair by count and by time, and shows who waits how long.")
		f.SetOutput(out)
		f.PrintDefaults()
		return s, err
	case err != nil:
		return s, err
	case f.NArg() > 0:
		return s, fmt.Errorf("what does %q mean? There are flags only", f.Arg(0))
	}
	return s, nil
}

func (s *settings) setServers(text string) error {
	if text == "auto" {
		s.servers = 0
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("must be 1 or more, or auto")
	}
	s.servers = n
	return nil
}

func (s *settings) setQuantum(text string) error {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0.001 && x <= 1000) {
		return errors.New("must be a number from 0.001 to 1000")
	}
	s.quantum = x
	return nil
}

func (s *settings) read() (*workload, error) {
	if s.in == "" {
		w, err := readWorkload(bytes.NewReader(lcg), "built-in log")
		if err == nil {
			w.title = lcgTitle
		}
		return w, err
	}
	f, err := os.Open(s.in)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w, err := readWorkload(f, s.in)
	if err == nil {
		w.title = filepath.Base(s.in)
	}
	return w, err
}

// compare runs the workload with each of the lines. Nothing else differs.
func compare(w *workload, servers int, lines []contender) ([]*result, error) {
	var results []*result
	for _, c := range lines {
		r := newResult(c.name, w)
		if err := simulate(w.jobs, servers, c.line, r); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		r.finish()
		results = append(results, r)
	}
	return results, nil
}
