package spill

import "errors"

var (
	// ErrClosed is returned when the Dir has been closed.
	ErrClosed = errors.New("spill: closed")

	// ErrFull is returned by Write when the letter would make the files larger than
	// Options.MaxBytes.
	ErrFull = errors.New("spill: directory is full")

	// ErrTooLarge is returned by Write when the letter has more than [MaxLetterBytes].
	ErrTooLarge = errors.New("spill: letter is too large")

	// ErrInUse is returned by Open when the directory is open already, here or in another process.
	ErrInUse = errors.New("spill: directory is in use")

	// ErrDamaged is returned by Restore when letters of a file are missing or cannot be read. The
	// error names the file and its first damaged line. The other letters of the file are restored,
	// and the file stays until you remove it.
	ErrDamaged = errors.New("spill: damaged")

	// ErrRefused is returned, alone or wrapped, by a sink that cannot take this letter now, but
	// maybe others. Restore then writes the letter again, behind all others, and goes on. At the
	// end it returns an error that wraps the first refusal and counts them. Restore treats a
	// letter whose payload the Codec cannot decode in the same way.
	ErrRefused = errors.New("spill: letter refused")
)
