// Command table runs the benchmarks of the module in the current folder, and prints medians as
// tables in Markdown. The output of the benchmarks goes to standard error.
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
		cmd := exec.Command("go", "test", "-run", "^$", "-bench", bench, "-benchtime", benchtime,
			"-timeout", "0", ".")
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

// line matches the line of a benchmark: its name, the number of processors if more than one, the
// number of runs, and the measurements.
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
		r := find(&tab.rows, func(x *row) bool { return x.name == m[2] },
			&row{name: m[2], values: map[string][]float64{}})
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

// find returns the first match in all, or appends another element.
func find[T any](all *[]*T, wanted func(*T) bool, another *T) *T {
	if i := slices.IndexFunc(*all, wanted); i >= 0 {
		return (*all)[i]
	}
	*all = append(*all, another)
	return another
}

// print writes one table for all benchmarks that have the same first row and unit, with a column
// for each. In the first row are the measurements, and then their ratios to it. The other units
// are those of the first benchmark.
func (t *tables) print(w io.Writer) {
	for all := slices.Clone(t.all); len(all) > 0; {
		first := all[0]
		var columns []*table
		all = slices.DeleteFunc(all, func(tab *table) bool {
			same := tab.units[0] == first.units[0] && tab.rows[0].name == first.rows[0].name
			if same {
				columns = append(columns, tab)
			}
			return same
		})
		header := []string{first.units[0]}
		for _, c := range columns {
			header = append(header, c.name)
		}
		header = append(header, first.units[1:]...)
		fmt.Fprintf(w, "\n| %s |\n%s|\n", strings.Join(header, " | "),
			strings.Repeat("|---", len(header)))
		for _, r := range first.rows {
			cells := []string{r.name}
			for _, c := range columns {
				cells = append(cells, c.cell(r.name))
			}
			for _, unit := range first.units[1:] {
				cells = append(cells, number(median(r.values[unit])))
			}
			fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		}
	}
}

// cell returns the median of the first row, or the median of a row's ratios to it and their range.
func (t *table) cell(name string) string {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		return ""
	}
	values, base := t.rows[i].values[t.units[0]], t.rows[0].values[t.units[0]]
	if i == 0 {
		return number(median(base))
	}
	var ratios []float64
	for n := range min(len(values), len(base)) {
		ratios = append(ratios, values[n]/base[n])
	}
	return fmt.Sprintf("**%s** (%s to %s)", ratio(median(ratios)), ratio(slices.Min(ratios)),
		ratio(slices.Max(ratios)))
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
