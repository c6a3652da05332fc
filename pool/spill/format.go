package spill

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// MaxLetterBytes limits the bytes of a letter in a file: its payload and its other fields.
const MaxLetterBytes = 16 << 20

// The marks of a line. They differ in more than one bit, so that no single flip turns one into the
// other.
const (
	waiting = '-'
	done    = 'X'
)

const (
	magic  = "fairq-spill"
	signed = magic + " 1" // what the checksums of a file of this version begin with
	prefix = len("- 01234567 ")
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	seed       = crc32.Checksum([]byte(signed), castagnoli)
	header     = headerOf("1")
)

func headerOf(version string) string {
	s := magic + " " + version
	return fmt.Sprintf("%s %08x\n", s, crc32.Checksum([]byte(s), castagnoli))
}

// newer returns the version in the first line of a file, if it is a later version.
func newer(line []byte) (version string, ok bool) {
	words := strings.Fields(string(line[:min(len(line), 100)]))
	if len(words) != 3 || string(line) != headerOf(words[1]) {
		return "", false
	}
	v, err := strconv.ParseUint(words[1], 10, 64)
	return words[1], err != nil || v > 1
}

func checksum(body []byte) uint32 { return crc32.Update(seed, castagnoli, body) }

// makeLine makes a line of the JSON of a letter.
func makeLine(body []byte) []byte {
	return fmt.Appendf(nil, "%c %08x %s\n", waiting, checksum(body), body)
}

// parseLine returns the mark and the JSON of a line. ok is false if it is damaged.
func parseLine(line []byte) (mark byte, body []byte, ok bool) {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if len(line) < prefix || line[0] != waiting && line[0] != done {
		return 0, nil, false
	}
	sum, err := strconv.ParseUint(string(line[2:prefix-1]), 16, 32)
	return line[0], line[prefix:], err == nil && checksum(line[prefix:]) == uint32(sum)
}

// scanner reads a file line by line.
type scanner struct {
	reader *bufio.Reader
	line   []byte // with its newline; empty if it is longer than a letter can be
	offset int64  // of the line
	length int64
	err    error // why there is no next line; nil at the end
}

func newScanner(file io.ReaderAt, from, to int64) *scanner {
	return &scanner{
		reader: bufio.NewReaderSize(io.NewSectionReader(file, from, to-from), 1<<16),
		offset: from,
	}
}

func (s *scanner) end() int64 { return s.offset + s.length }

// next goes on to the next line, if there is one. The last one need not end in a newline.
func (s *scanner) next() bool {
	s.offset, s.length, s.line = s.end(), 0, s.line[:0]
	for {
		part, err := s.reader.ReadSlice('\n')
		s.length += int64(len(part))
		if s.length <= MaxLetterBytes {
			s.line = append(s.line, part...)
		} else {
			s.line = s.line[:0]
		}
		switch {
		case err == nil:
			return true
		case errors.Is(err, io.EOF):
			return s.length > 0
		case !errors.Is(err, bufio.ErrBufferFull):
			s.err = err
			return false
		}
	}
}

// text is a string in JSON. A string that is not UTF-8, which JSON would change, is {"base64":
// ...}.
type text []byte

type encoded struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON returns either form.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.Valid(t) {
		return json.Marshal(string(t))
	}
	return json.Marshal(encoded{t})
}

// UnmarshalJSON takes both.
func (t *text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var e encoded
		err := json.Unmarshal(data, &e)
		*t = e.Base64
		return err
	}
	var s string
	err := json.Unmarshal(data, &s)
	*t = text(s)
	return err
}

// record is the JSON of a letter. Fields of a version of the format stay in it.
type record struct {
	Task     info        `json:"task"`
	Payload  text        `json:"payload"` // as the Codec has it
	Class    text        `json:"class,omitempty"`
	Reason   pool.Reason `json:"reason"`
	Err      *failure    `json:"err,omitempty"`
	Attempts int         `json:"attempts,omitempty"`
	At       time.Time   `json:"at,omitzero"`
}

type info struct {
	ID          task.ID       `json:"id,omitempty"`
	Key         text          `json:"key"`
	Kind        text          `json:"kind,omitempty"`
	UniqueKey   text          `json:"address,omitempty"`
	Group       text          `json:"group,omitempty"`
	Role        task.Role     `json:"role,omitempty"`
	State       task.State    `json:"state,omitempty"`
	Priority    int           `json:"priority,omitempty"`
	Cost        int64         `json:"cost,omitempty"`
	Attempts    int           `json:"attempts,omitempty"`
	MaxAttempts int           `json:"max_attempts,omitempty"`
	TTR         time.Duration `json:"ttr,omitempty"`
	Created     time.Time     `json:"created,omitzero"`
	Until       time.Time     `json:"until,omitzero"`
	Expires     time.Time     `json:"expires,omitzero"`
	Deadline    time.Time     `json:"deadline,omitzero"`
	ReadyAt     time.Time     `json:"readyAt,omitzero"`
	Consumer    text          `json:"consumer,omitempty"`
	Err         *failure      `json:"err,omitempty"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

type failure struct {
	Code    int  `json:"code,omitempty"`
	Message text `json:"message"`
}

func newFailure(err error) *failure {
	if err == nil {
		return nil
	}
	var e *task.Error
	if !errors.As(err, &e) {
		return &failure{Message: text(err.Error())}
	}
	if e == nil {
		return &failure{Message: text("a nil *task.Error")}
	}
	return &failure{e.Code, text(err.Error())}
}

func (f *failure) error() *task.Error {
	if f == nil {
		return nil
	}
	return &task.Error{Code: f.Code, Message: string(f.Message)}
}

// encode returns the line of a letter.
func encode[V any](letter *pool.DeadLetter[V], codec task.Codec[V]) ([]byte, error) {
	payload, err := codec.Encode(letter.Payload)
	if err != nil {
		return nil, fmt.Errorf("spill: payload of key %q: %w", letter.Task.Key, err)
	}
	t := &letter.Task
	r := record{
		Task: info{
			ID: t.ID, Key: text(t.Key), Kind: text(t.Kind), UniqueKey: text(t.UniqueKey),
			Group: text(t.Group), Role: t.Role,
			State: t.State, Priority: t.Priority, Cost: t.Cost, Attempts: t.Attempts,
			MaxAttempts: t.MaxAttempts, TTR: t.TTR, Created: t.Created.UTC(),
			Until: t.Until.UTC(), Expires: t.Expires.UTC(), Deadline: t.Deadline.UTC(),
			ReadyAt: t.ReadyAt.UTC(), Consumer: text(t.Consumer),
			Metadata: t.Metadata,
		},
		Payload: payload, Class: text(letter.Class), Reason: letter.Reason, Err: newFailure(letter.Err),
		Attempts: letter.Attempts,
		At:       letter.At.UTC(),
	}
	if t.Err != nil {
		r.Task.Err = newFailure(t.Err)
	}
	body, err := json.Marshal(&r)
	if err != nil {
		return nil, fmt.Errorf("spill: letter of key %q: %w", letter.Task.Key, err)
	}
	if n := prefix + len(body) + 1; n > MaxLetterBytes {
		return nil, fmt.Errorf("%w: that of key %q has %d bytes, the limit is %d", ErrTooLarge,
			letter.Task.Key, n, MaxLetterBytes)
	}
	return makeLine(body), nil
}

// decode returns the letter with this JSON, or a refusal if it cannot decode it.
func decode[V any](body []byte, codec task.Codec[V]) (*pool.DeadLetter[V], error) {
	var r record
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var payload V
	err := guard("Codec.Decode", func() (err error) {
		payload, err = codec.Decode(r.Payload)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: payload of key %q: %w", ErrRefused, r.Task.Key, err)
	}
	t := &r.Task
	letter := &pool.DeadLetter[V]{
		Task: task.Info{
			ID: t.ID, Key: string(t.Key), Kind: string(t.Kind), UniqueKey: string(t.UniqueKey),
			Group: string(t.Group), Role: t.Role,
			State: t.State, Priority: t.Priority, Cost: t.Cost, Attempts: t.Attempts,
			MaxAttempts: t.MaxAttempts, TTR: t.TTR, Created: t.Created,
			Until: t.Until, Expires: t.Expires, Deadline: t.Deadline, ReadyAt: t.ReadyAt,
			Consumer: string(t.Consumer), Err: t.Err.error(),
			Metadata: t.Metadata,
		},
		Payload: payload, Class: string(r.Class), Reason: r.Reason, Attempts: r.Attempts, At: r.At,
	}
	if r.Err != nil {
		letter.Err = r.Err.error()
	}
	return letter, nil
}

type jsonCodec[V any] struct{}

func (jsonCodec[V]) Encode(payload V) ([]byte, error) { return json.Marshal(payload) }

func (jsonCodec[V]) Decode(data []byte) (payload V, err error) {
	err = json.Unmarshal(data, &payload)
	return payload, err
}

// unlimited is more bytes than there are.
const unlimited = math.MaxInt64
