package kv

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"

	"github.com/fairq/fairq/store/internal/rows"
)

// The encoding is that of FoundationDB's tuple layer. Each element begins with a type byte. A
// string has the type byte, its bytes with each zero byte escaped as 0x00 0xff, and a zero byte.
// The type of a positive number is typeZero plus the number of its bytes. The bytes follow. The
// type of a negative number is typeZero minus the number of its bytes. The bytes of its ones'
// complement follow. So bytes.Compare orders encoded tuples as their values.
const (
	typeString = 0x01
	typeZero   = 0x14
	endByte    = 0xff // greater than any type
)

// appendTuple encodes a tuple.
func appendTuple(b []byte, t rows.Tuple) []byte {
	for _, e := range t {
		switch e := e.(type) {
		case int64:
			b = appendInt(b, e)
		case string:
			b = appendString(b, e)
		}
	}
	return b
}

func appendInt(b []byte, n int64) []byte {
	var word [8]byte
	if n < 0 {
		binary.BigEndian.PutUint64(word[:], ^uint64(-n))
		used := (bits.Len64(uint64(-n)) + 7) / 8
		return append(append(b, byte(typeZero-used)), word[8-used:]...)
	}
	binary.BigEndian.PutUint64(word[:], uint64(n))
	used := (bits.Len64(uint64(n)) + 7) / 8
	return append(append(b, byte(typeZero+used)), word[8-used:]...)
}

func appendString(b []byte, s string) []byte {
	b = append(b, typeString)
	for i := range len(s) {
		if b = append(b, s[i]); s[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return append(b, 0)
}

// sizeOf returns the number of bytes of the first n elements. If these are damaged, it may return
// len(b), but never more.
func sizeOf(b []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(b); n-- {
		size := 1
		if b[at] == typeString {
			size = stringSize(b[at:])
		} else if size += int(b[at]) - typeZero; size < 1 {
			size = 2 - size
		}
		at = min(at+size, len(b))
	}
	return at
}

func stringSize(b []byte) int {
	for at := 1; ; at += 2 {
		end := bytes.IndexByte(b[at:], 0)
		if end < 0 {
			return len(b)
		}
		if at += end; at+1 >= len(b) || b[at+1] != 0xff {
			return at + 1
		}
	}
}

// uintAt decodes the first element as a number, which is not negative.
func uintAt(b []byte) (n uint64) {
	for _, c := range b[min(1, len(b)):sizeOf(b, 1)] {
		n = n<<8 | uint64(c)
	}
	return n
}

// stringAt decodes the first element as a string.
func stringAt(b []byte) string {
	return strings.ReplaceAll(string(b[1:max(1, sizeOf(b, 1)-1)]), "\x00\xff", "\x00")
}

// last returns the encoding of the last n elements of a key, which has at least n.
func last(key []byte, n int) []byte {
	total := 0
	for at := 0; at < len(key); total++ {
		at += sizeOf(key[at:], 1)
	}
	return key[sizeOf(key, total-n):]
}

// prefixEnd returns the end of the span of all keys with a prefix.
func prefixEnd(key []byte) []byte { return append(key[:len(key):len(key)], endByte) }
