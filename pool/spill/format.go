package spill

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"reflect"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// MaxLetterBytes limits the JSON of a letter, in bytes: its payload and its other fields.
const MaxLetterBytes = 16 << 20

// The marks of a line. They differ in more than one bit, so that no single flip turns one into the
// other.
const (
	waiting = '-'
	done    = 'X'
)

const (
	header = "fairq-spill 1\n"
	prefix = len("- 01234567 ")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// makeLine makes the line of a letter with this number, from its JSON. The checksum is that of
// both, so that no line can stand for another one.
func makeLine(number uint64, body []byte) []byte {
	text := fmt.Appendf(nil, "%d %s", number, body)
	return fmt.Appendf(nil, "%c %08x %s\n", waiting, crc32.Checksum(text, castagnoli), text)
}

// parseLine returns the number and the JSON of a line. ok is false if the line is damaged. The
// checksum does not cover the last byte, usually a newline.
func parseLine(line []byte) (number uint64, body []byte, ok bool) {
	if len(line) <= prefix || line[0] != waiting && line[0] != done {
		return 0, nil, false
	}
	text := line[prefix : len(line)-1]
	sum, bad := strconv.ParseUint(string(line[2:prefix-1]), 16, 32)
	if bad != nil || crc32.Checksum(text, castagnoli) != uint32(sum) {
		return 0, nil, false
	}
	digits, body, _ := bytes.Cut(text, []byte(" "))
	number, bad = strconv.ParseUint(string(digits), 10, 64)
	return number, body, bad == nil
}

// scanner reads a file line by line.
type scanner struct {
	reader *bufio.Reader
	line   []byte // with its newline
	offset int64  // of the line
	err    error  // why there is no next line; nil at the end
}

func newScanner(file io.ReaderAt, from int64) *scanner {
	return &scanner{
		reader: bufio.NewReader(io.NewSectionReader(file, from, unlimited-from)), offset: from,
	}
}

func (s *scanner) end() int64 { return s.offset + int64(len(s.line)) }

// next goes on to the next line, if there is one. The file may end in bytes without a newline. If
// they are a whole letter, they are a line. Otherwise they come from a Write that never returned.
func (s *scanner) next() bool {
	s.offset = s.end()
	s.line, s.err = s.reader.ReadBytes('\n')
	if s.err != io.EOF { //nolint:errorlint // ReadBytes never wraps it
		return s.err == nil
	}
	s.err = nil
	_, _, ok := parseLine(s.line)
	return ok
}

// record is a letter as its JSON has it. The names of the fields, also of those of task.Info, are
// the format.
type record struct {
	Task    task.Info
	Payload string // as the Codec has it
	Class   string
	Reason  pool.Reason
	Err     *task.Error
	At      time.Time
}

// toJSON returns the value from which the JSON of a field is made. It leaves out zero values, and
// has times in UTC. A string that is not UTF-8 is in base64, because JSON would change it.
func toJSON(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Time:
		return x.UTC()
	case string:
		if utf8.ValidString(x) {
			return x
		}
		return map[string][]byte{"base64": []byte(x)}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return toJSON(v.Elem())
	case reflect.Struct:
		fields := map[string]any{}
		for of, field := range v.Fields() {
			if !field.IsZero() {
				fields[of.Name] = toJSON(field)
			}
		}
		return fields
	}
	return v.Interface()
}

// fromJSON is the inverse of toJSON.
func fromJSON(data json.RawMessage, v reflect.Value) error {
	_, isTime := v.Interface().(time.Time)
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fromJSON(data, v.Elem())
	case v.Kind() == reflect.String && bytes.HasPrefix(data, []byte("{")):
		var b map[string][]byte
		err := json.Unmarshal(data, &b)
		v.SetString(string(b["base64"]))
		return err
	case v.Kind() == reflect.Struct && !isTime:
		var fields map[string]json.RawMessage
		err := json.Unmarshal(data, &fields)
		for name, data := range fields {
			if field := v.FieldByName(name); field.IsValid() {
				err = errors.Join(err, fromJSON(data, field))
			}
		}
		return err
	}
	return json.Unmarshal(data, v.Addr().Interface())
}

// encode returns the JSON of a letter.
func encode[V any](letter *pool.DeadLetter[V], codec task.Codec[V]) ([]byte, error) {
	payload, err := codec.Encode(letter.Payload)
	if err != nil {
		return nil, fmt.Errorf("spill: payload of key %q: %w", letter.Task.Key, err)
	}
	r := record{
		Task: letter.Task, Payload: string(payload), Class: letter.Class, Reason: letter.Reason,
		Err: newError(letter.Err), At: letter.At,
	}
	body, err := json.Marshal(toJSON(reflect.ValueOf(r)))
	if err != nil {
		return nil, fmt.Errorf("spill: letter of key %q: %w", letter.Task.Key, err)
	}
	if n := len(body); n > MaxLetterBytes {
		return nil, fmt.Errorf("%w: that of key %q has %d bytes, the limit is %d", ErrTooLarge,
			letter.Task.Key, n, MaxLetterBytes)
	}
	return body, nil
}

func newError(err error) *task.Error {
	var e *task.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		return &task.Error{Message: err.Error()}
	case e == nil:
		return &task.Error{Message: "a nil *task.Error"}
	}
	return &task.Error{Code: e.Code, Message: err.Error()}
}

// decode returns the letter with this JSON, or a refusal if it cannot decode it.
func decode[V any](body []byte, codec task.Codec[V]) (*pool.DeadLetter[V], error) {
	var r record
	if err := fromJSON(body, reflect.ValueOf(&r).Elem()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	l := &pool.DeadLetter[V]{
		Task: r.Task, Class: r.Class, Reason: r.Reason, At: r.At,
	}
	if r.Err != nil {
		l.Err = r.Err
	}
	err := guard("Codec.Decode", func() (err error) {
		l.Payload, err = codec.Decode([]byte(r.Payload))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: payload of key %q: %w", ErrRefused, r.Task.Key, err)
	}
	return l, nil
}

type jsonCodec[V any] struct{}

func (jsonCodec[V]) Encode(payload V) ([]byte, error) { return json.Marshal(payload) }

func (jsonCodec[V]) Decode(data []byte) (payload V, err error) {
	err = json.Unmarshal(data, &payload)
	return payload, err
}
