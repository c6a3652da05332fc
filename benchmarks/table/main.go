// Command table runs the benchmarks of the module it is started in, and prints medians as tables
// in Markdown. What the benchmarks print goes to standard error.
//
// All benchmarks are run once, then all of them again, and so on. A ratio is taken within one such
// round, so that it does not matter if the machine is slower in another one.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

func main() {
	bench := flag.String("bench", ".", "which benchmarks, as for go test")
	benchtime := flag.String("benchtime", "2s", "how long each, as for go test")
	count := flag.Int("count", 6, "how many rounds")
	flag.Parse()
	if err := run(*bench, *benchtime, *count); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(bench, benchtime string, count int) error {
	var t tables
	for range count {
		var out bytes.Buffer
		cmd := exec.Command("go", "test", "-run", "^$", "-bench", bench, "-benchtime", benchtime, "-timeout", "0", ".")
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, os.Stderr), os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go test: %w", err)
		}
		if err := t.add(&out); err != nil {
			return err
		}
	}
	fmt.Printf("Medians of %d rounds of %s, %s, %d processors, %s/%s, %s.\n",
		count, benchtime, t.cpu, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version())
	t.print(os.Stdout)
	return nil
}

// tables has a table for each benchmark, with a row for each of its sub-benchmarks, in the order
// in which they came.
type tables struct {
	cpu string
	all []*table
}

type table struct {
	name  string
	units []string
	rows  []*row
}

// row has the values of each unit, one for each round.
type row struct {
	name   string
	values map[string][]float64
}

// line is a benchmark's: its name, the number of processors if more than one, the number of runs,
// and the measurements.
var line = regexp.MustCompile(`^Benchmark(\S+)/(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// add reads what a round printed.
func (t *tables) add(round io.Reader) error {
	lines := bufio.NewScanner(round)
	for lines.Scan() {
		if cpu, ok := strings.CutPrefix(lines.Text(), "cpu: "); ok {
			t.cpu = cpu
		}
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		tab := find(&t.all, func(x *table) bool { return x.name == m[1] }, &table{name: m[1]})
		r := find(&tab.rows, func(x *row) bool { return x.name == m[2] }, &row{name: m[2], values: map[string][]float64{}})
		measured := strings.Fields(m[3])
		for i := 0; i+1 < len(measured); i += 2 {
			v, err := strconv.ParseFloat(measured[i], 64)
			if err != nil {
				return fmt.Errorf("%q: %w", lines.Text(), err)
			}
			unit := measured[i+1]
			if !slices.Contains(tab.units, unit) {
				tab.units = append(tab.units, unit)
			}
			r.values[unit] = append(r.values[unit], v)
		}
	}
	return lines.Err()
}

// find returns the first of all that is wanted, or else appends another.
func find[T any](all *[]*T, wanted func(*T) bool, another *T) *T {
	if i := slices.IndexFunc(*all, wanted); i >= 0 {
		return (*all)[i]
	}
	*all = append(*all, another)
	return another
}

// print writes the tables. Ratios are those of a table's first unit to its first row.
func (t *tables) print(w io.Writer) {
	for _, tab := range t.all {
		first, base := tab.units[0], tab.rows[0]
		fmt.Fprintf(w, "\n### %s\n\n| | %s | ratio | lowest to highest |", tab.name, first)
		for _, unit := range tab.units[1:] {
			fmt.Fprintf(w, " %s |", unit)
		}
		fmt.Fprintln(w, "\n|---|---|---|---|"+strings.Repeat("---|", len(tab.units)-1))
		for _, r := range tab.rows {
			fmt.Fprintf(w, "| %s | %s | %s |", r.name, number(median(r.values[first])), ratios(r.values[first], base.values[first]))
			for _, unit := range tab.units[1:] {
				fmt.Fprintf(w, " %s |", number(median(r.values[unit])))
			}
			fmt.Fprintln(w)
		}
	}
}

// ratios has the median of the rounds' ratios and, in a column of its own, their range.
func ratios(values, base []float64) string {
	var all []float64
	for i := range min(len(values), len(base)) {
		all = append(all, values[i]/base[i])
	}
	if len(all) == 0 {
		return " | "
	}
	return fmt.Sprintf("**%s** | %s to %s", ratio(median(all)), ratio(slices.Min(all)), ratio(slices.Max(all)))
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// ratio has one digit behind the point from 1 on, two below, and as many as it needs below 0.01.
func ratio(v float64) string {
	switch {
	case v != 0 && v < 0.01:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case v < 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
}

// number has no digits behind the point from 100 on, and commas between the thousands.
func number(v float64) string {
	if v < 100 {
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
