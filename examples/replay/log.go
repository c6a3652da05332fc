package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// maxSeconds bounds times, 317 years, so that no sum of them overflows.
const maxSeconds = 10_000_000_000

var header = []string{"submit_s", "user", "run_s"}

// readWorkload reads a log, plain or packed with gzip. Errors name the file and the line.
func readWorkload(r io.Reader, name string) (*workload, error) {
	text := bufio.NewReader(r)
	if magic, _ := text.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text = bufio.NewReader(unpacked)
	}
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
		_, _ = text.Discard(3) // the byte order mark that spreadsheets put first
	}
	b := builder{numbers: map[string]int{}}
	if line, err := b.read(text); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	if len(b.w.jobs) == 0 {
		return nil, fmt.Errorf("%s: there are no jobs in it", name)
	}
	slices.SortStableFunc(b.w.jobs, func(a, b job) int { return cmp.Compare(a.submit, b.submit) })
	return &b.w, nil
}

// builder makes a workload out of lines.
type builder struct {
	w       workload
	numbers map[string]int // users by name
}

// read reads all lines. With an error it returns the number of the line.
func (b *builder) read(text io.Reader) (int, error) {
	r := csv.NewReader(text)
	r.FieldsPerRecord = -1 // to be checked here, for a better message
	r.ReuseRecord = true
	r.TrimLeadingSpace = true
	line := 0
	for headed := false; ; headed = true {
		fields, err := r.Read()
		if err == io.EOF {
			return line, nil
		}
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			return parse.Line, parse.Err
		}
		if err != nil {
			return line + 1, err
		}
		line, _ = r.FieldPos(0)
		if !headed {
			if !slices.EqualFunc(fields, header,
				func(a, b string) bool { return strings.TrimSpace(a) == b }) {
				return line, fmt.Errorf("the header is %q, must be %q", strings.Join(fields, ","),
					strings.Join(header, ","))
			}
			continue
		}
		if len(fields) != len(header) {
			return line, fmt.Errorf("%s, must be %d (%s)", plural(len(fields), "field"), len(header),
				strings.Join(header, ","))
		}
		if err := b.add(fields[0], fields[1], fields[2]); err != nil {
			return line, err
		}
	}
}

// add takes one job.
func (b *builder) add(submit, user, run string) error {
	at, err := seconds("submit time", submit)
	if err != nil {
		return err
	}
	took, err := seconds("run time", run)
	if err != nil {
		return err
	}
	user = strings.TrimSpace(user)
	if user == "" {
		return errors.New("the user is empty")
	}
	n, ok := b.numbers[user]
	if !ok {
		n = len(b.w.names)
		b.numbers[user] = n
		b.w.names = append(b.w.names, user)
	}
	b.w.jobs = append(b.w.jobs, job{user: n, submit: at, run: took})
	return nil
}

func seconds(what, text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > maxSeconds {
		return 0, fmt.Errorf("the %s is %q, must be a whole number of seconds from 0 to %d", what, text,
			int64(maxSeconds))
	}
	return n, nil
}
