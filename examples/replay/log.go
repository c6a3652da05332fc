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

// The columns of the two formats, counted from 0.
var (
	csvHeader = []string{"submit_s", "user", "run_s"}
	swfSubmit = 1
	swfRun    = 3
	swfUser   = 11
)

// readWorkload reads a log: CSV or SWF, plain or packed with gzip. What it is can be seen from its
// beginning, so a file may have any name. Errors name the file and the line.
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
	read := b.readSWF
	if isCSV(text) {
		read = b.readCSV
	}
	if line, err := read(text); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	switch {
	case len(b.w.jobs) == 0 && b.w.skipped == 0:
		return nil, fmt.Errorf("%s: there are no jobs in it", name)
	case len(b.w.jobs) == 0:
		return nil, fmt.Errorf("%s: no jobs to replay; the run time of each (%d in all) is unknown", name, b.w.skipped)
	}
	slices.SortStableFunc(b.w.jobs, func(a, b job) int { return cmp.Compare(a.submit, b.submit) })
	return &b.w, nil
}

// isCSV tells the formats apart: the first line of a CSV has commas and is no comment.
func isCSV(text *bufio.Reader) bool {
	start, _ := text.Peek(512)
	line, _, _ := bytes.Cut(bytes.TrimSpace(start), []byte("\n"))
	return !bytes.HasPrefix(line, []byte(";")) && bytes.ContainsRune(line, ',')
}

// builder makes a workload out of lines.
type builder struct {
	w       workload
	numbers map[string]int // users by name
}

// readCSV and readSWF read all lines. With an error they return the number of the line that it is
// about.

func (b *builder) readCSV(text io.Reader) (int, error) {
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
			if !slices.EqualFunc(fields, csvHeader, func(a, b string) bool { return strings.TrimSpace(a) == b }) {
				return line, fmt.Errorf("the header is %q, must be %q", strings.Join(fields, ","), strings.Join(csvHeader, ","))
			}
			continue
		}
		if len(fields) != len(csvHeader) {
			return line, fmt.Errorf("%s, must be %d (%s)", plural(len(fields), "field"), len(csvHeader), strings.Join(csvHeader, ","))
		}
		if err := b.add(fields[0], fields[1], fields[2], false); err != nil {
			return line, err
		}
	}
}

// In SWF the user may be -1, unknown. All jobs of unknown users count as those of one user of that
// name.
func (b *builder) readSWF(text io.Reader) (int, error) {
	lines := bufio.NewScanner(text)
	line := 0
	for lines.Scan() {
		line++
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], ";") {
			continue
		}
		if len(fields) <= swfUser {
			return line, fmt.Errorf("%s, a line of an SWF file has %d or more (a CSV begins with %s)",
				plural(len(fields), "field"), swfUser+1, strings.Join(csvHeader, ","))
		}
		if err := b.add(fields[swfSubmit], fields[swfUser], fields[swfRun], true); err != nil {
			return line, err
		}
	}
	return line + 1, lines.Err()
}

// add takes one job. If unknown is true, a negative run time says that nobody knows it, as in SWF;
// such a job cannot be replayed. In a CSV it is a mistake.
func (b *builder) add(submit, user, run string, unknown bool) error {
	at, err := seconds("submit time", submit, 0)
	if err != nil {
		return err
	}
	least := int64(0)
	if unknown {
		least = -maxSeconds
	}
	took, err := seconds("run time", run, least)
	if err != nil {
		return err
	}
	user = strings.TrimSpace(user)
	if user == "" {
		return errors.New("the user is empty")
	}
	if took < 0 {
		b.w.skipped++
		return nil
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

func seconds(what, text string, least int64) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < least || n > maxSeconds {
		return 0, fmt.Errorf("the %s is %q, must be a whole number of seconds from %d to %d", what, text, least, int64(maxSeconds))
	}
	return n, nil
}
