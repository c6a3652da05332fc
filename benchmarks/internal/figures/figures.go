// Package figures writes the numbers of tables in Markdown.
package figures

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/exp/stats"
)

// Median returns the median of the rounds, nothing if there are none. It has no digits behind the
// point from 100 on, and commas between the thousands.
func Median(rounds []float64) string {
	if len(rounds) == 0 {
		return ""
	}
	v := stats.Median(rounds)
	if v < 100 {
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Ratio returns the median of the ratios of a to b within a round, and their range. So it does not
// matter if the machine is slower in another round.
func Ratio(a, b []float64) string {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]/b[i])
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("**%s** (%s to %s)", ratio(stats.Median(all)), ratio(slices.Min(all)),
		ratio(slices.Max(all)))
}

// ratio has one digit behind the point from 1 on, two below, and as many as it needs below 0.01.
func ratio(v float64) string {
	switch {
	case v < 0.01:
		return fmt.Sprintf("%.2g", v)
	case v < 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.1f", v)
	}
}
