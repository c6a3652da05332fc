package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table has a column for each contestant, and in each cell a value for each round.
type table struct {
	name    string
	columns []*entrant
	rows    []*row
}

type row struct {
	name  string
	cells map[string][]float64
}

func newTable(name string,
	columns []*entrant,
) *table {
	return &table{name: name, columns: columns}
}

func (t *table) add(name, column string, value float64) {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{name, map[string][]float64{}})
	}
	t.rows[i].cells[column] = append(t.rows[i].cells[column], value)
}

// print writes medians, and the ratio of the column "ours" to the best other column. More is
// better.
func (t *table) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n| |", t.name)
	for _, c := range t.columns {
		fmt.Fprintf(w, " %s |", c.title())
	}
	fmt.Fprint(w, " ours : best other |\n|---|", strings.Repeat("---|", len(t.columns)), "---|\n")
	for _, r := range t.rows {
		fmt.Fprintf(w, "| %s |", r.name)
		for _, c := range t.columns {
			fmt.Fprintf(w, " %s |", number1(median(r.cells[c.name])))
		}
		fmt.Fprintf(w, " %s |\n", r.ratio())
	}
}

// ratio is the median of the ratios within a round, and their range.
func (r *row) ratio() string {
	best := ""
	for name, values := range r.cells {
		if name != "ours" && (best == "" || median(values) > median(r.cells[best])) {
			best = name
		}
	}
	var all []float64
	for i := range min(len(r.cells["ours"]), len(r.cells[best])) {
		all = append(all, r.cells["ours"][i]/r.cells[best][i])
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("**%s** (%s to %s)", ratio(median(all)), ratio(slices.Min(all)),
		ratio(slices.Max(all)))
}

// median is NaN if there are no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// ratio has one digit behind the point from 10 on, else two.
func ratio(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// number1 has a digit behind the point below 100, and commas between the thousands.
func number1(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v < 100:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	return grouped(v)
}

func grouped(v float64) string {
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
