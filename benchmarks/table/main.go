// Command table runs the benchmarks of the module in the current folder, and prints medians as
// tables in Markdown. The output of the benchmarks goes to standard error.
//
// All benchmarks are run once, then all of them again, and so on: a round each.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/fairq/fairq/benchmarks/internal/figures"
)

func main() {
	bench := flag.String("bench", ".", "which benchmarks, as for go test")
	benchtime := flag.String("benchtime", "2s", "how long each, as for go test")
	count := flag.Int("count", 6, "how many rounds")
	flag.Parse()
	var t tables
	for range *count {
		var out bytes.Buffer
		cmd := exec.Command("go", "test", "-run", "^$", "-bench", *bench, "-benchtime", *benchtime,
			"-timeout", "0", ".")
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, os.Stderr), os.Stderr
		if err := cmd.Run(); err != nil {
			log.Fatal("go test: ", err)
		}
		t.add(&out)
	}
	fmt.Printf("Medians of %d rounds of %s, %s, %d processors, %s/%s, %s.\n", *count, *benchtime,
		t.cpu, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version())
	t.print(os.Stdout)
}

// tables has a table for each benchmark, in the order in which they came.
type tables struct {
	cpu string
	all []*table
}

// table has a row for each sub-benchmark. The values are by row and unit, one for each round.
type table struct {
	name        string
	units, rows []string
	values      map[[2]string][]float64
}

// line matches the line of a benchmark: its name, the number of processors if more than one, the
// number of runs, and the measurements.
var line = regexp.MustCompile(`^Benchmark(\S+)/(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// add reads what a round printed.
func (t *tables) add(round io.Reader) {
	for lines := bufio.NewScanner(round); lines.Scan(); {
		if cpu, ok := strings.CutPrefix(lines.Text(), "cpu: "); ok {
			t.cpu = cpu
		}
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		i := slices.IndexFunc(t.all, func(x *table) bool { return x.name == m[1] })
		if i < 0 {
			i = len(t.all)
			t.all = append(t.all, &table{name: m[1], values: map[[2]string][]float64{}})
		}
		x, measured := t.all[i], strings.Fields(m[3])
		x.rows = with(x.rows, m[2])
		for i := 0; i+1 < len(measured); i += 2 {
			x.units = with(x.units, measured[i+1])
			v, _ := strconv.ParseFloat(measured[i], 64) // package testing writes numbers
			cell := [2]string{m[2], measured[i+1]}
			x.values[cell] = append(x.values[cell], v)
		}
	}
}

// with returns all with s, once.
func with(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// print writes one table for all benchmarks that have the same first row and unit, with a column
// for each. The first row has the measurements, and the others have their ratios to the first.
// Columns for other units follow, from the first benchmark.
func (t *tables) print(w io.Writer) {
	for all := slices.Clone(t.all); len(all) > 0; {
		first := all[0]
		unit, base := first.units[0], first.rows[0]
		var columns []*table
		all = slices.DeleteFunc(all, func(x *table) bool {
			same := x.units[0] == unit && x.rows[0] == base
			if same {
				columns = append(columns, x)
			}
			return same
		})
		header := []string{unit}
		for _, c := range columns {
			header = append(header, c.name)
		}
		header = append(header, first.units[1:]...)
		fmt.Fprintf(w, "\n| %s |\n%s|\n", strings.Join(header, " | "),
			strings.Repeat("|---", len(header)))
		for _, row := range first.rows {
			cells := []string{row}
			for _, c := range columns {
				cell := figures.Ratio(c.values[[2]string{row, unit}], c.values[[2]string{base, unit}])
				if row == base {
					cell = figures.Median(c.values[[2]string{row, unit}])
				}
				cells = append(cells, cell)
			}
			for _, unit := range first.units[1:] {
				cells = append(cells, figures.Median(first.values[[2]string{row, unit}]))
			}
			fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		}
	}
}
