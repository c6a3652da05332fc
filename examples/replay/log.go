package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// maxSeconds bounds times, 317 years, so that no sum of them overflows.
const maxSeconds = 10_000_000_000

var header = []string{"submit_s", "user", "run_s"}

// readWorkload reads a log, plain or packed with gzip. Errors name the log and the record.
func readWorkload(log io.Reader, title string) (*workload, error) {
	text := bufio.NewReader(log)
	if magic, _ := text.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", title, err)
		}
		text = bufio.NewReader(unpacked)
	}
	r := csv.NewReader(text)
	r.FieldsPerRecord = len(header)
	records, err := r.ReadAll()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", title, err)
	case len(records) < 2:
		return nil, fmt.Errorf("%s: there are no jobs in it", title)
	case !slices.Equal(records[0], header):
		return nil, fmt.Errorf("%s: the header is %q, must be %q", title, records[0], header)
	}
	w := &workload{title: title}
	numbers := map[string]int{} // users by name
	for i, fields := range records[1:] {
		if err := w.add(fields, numbers); err != nil {
			return nil, fmt.Errorf("%s: record %d: %w", title, i+2, err)
		}
	}
	slices.SortStableFunc(w.jobs, func(a, b job) int { return cmp.Compare(a.submit, b.submit) })
	return w, nil
}

// add takes the job of a record.
func (w *workload) add(fields []string, numbers map[string]int) error {
	var times [2]int64
	for i, column := range []int{0, 2} {
		n, err := strconv.ParseInt(fields[column], 10, 64)
		if err != nil || n < 0 || n > maxSeconds {
			return fmt.Errorf("%s is %q, must be a whole number of seconds from 0 to %d",
				header[column], fields[column], int64(maxSeconds))
		}
		times[i] = n
	}
	user, ok := numbers[fields[1]]
	if !ok {
		user = len(w.names)
		numbers[fields[1]] = user
		w.names = append(w.names, fields[1])
		w.count, w.work = append(w.count, 0), append(w.work, 0)
	}
	w.count[user]++
	w.work[user] += times[1]
	w.total += times[1]
	w.jobs = append(w.jobs, job{user: user, submit: times[0], run: times[1]})
	return nil
}
