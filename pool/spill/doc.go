// Package spill keeps dead letters in files, and puts them back when there is room again.
//
//	letters, err := spill.Open[Job]("letters", nil)
//	p := pool.Func(handler, &pool.Options[Job]{DeadLetters: letters.Write})
//	n, err := letters.Restore(ctx, spill.Into(queue, 0.5)) // until the queue is half full
//	err = letters.Close()
//
// # What is promised
//
//   - After Write has returned nil, the letter survives the end of the process, even kill -9, and
//     with Options.Sync the end of the machine. If Write returns an error, it has not taken the
//     letter.
//   - Restore hands out letters in the order in which they were written, each at least once: until
//     a sink has taken it. A letter comes twice only if the process ends, or the disk fails,
//     between the sink's return and the write of one byte after it. So a kill repeats at most one
//     letter.
//   - Nothing is dropped silently. Every letter has a checksum. Restore sets an unreadable letter
//     aside in a file *.damaged, such as the last one of a killed process, and returns
//     [ErrDamaged]. It goes on with the next letter, so damage costs only the letters that it hit.
//   - A letter that cannot be put back now does not block others: see [ErrRefused].
//   - Strings keep their bytes, even if they are not UTF-8. Times are in UTC, and an error is a
//     [*task.Error] with the message, and the code if there was one.
//   - A file of a newer version of the format is left alone, and Restore returns [ErrVersion].
//
// # Not promised
//
//   - The absence of a letter whose Write returned an error, or had not returned when the process
//     was killed. It may be restored if the disk failed to remove it, or if all of it was written.
//   - Few repeats after a loss of power. Even with Options.Sync the operating system decides when
//     the mark of a done letter reaches the disk.
//   - An order between refused letters and others.
//
// # Processes
//
// One process at a time has a directory open; others get [ErrInUse]. The operating system's lock
// on the file named lock ends with the process, however that ends, and the next process restores
// its files. On systems other than Windows, Linux, macOS, the BSDs and illumos, and on network
// file systems without locks, nothing keeps a second process out, and two would damage each
// other's files. Each running program needs a directory of its own.
//
// # Files
//
// The names are 000000000001.letters and so on, in the order of writing. A file is text, and
// begins with a line that has the version of the format. Each other line is a letter:
//
//	fairq-spill 1 158ef5cf
//	- 0d854fb4 {"task":{"id":7,"key":"alice"},"payload":"{\"To\":\"\"}","reason":2,"attempts":3}
//
// The mark is - for a waiting letter and X for a done one. The checksum is the CRC-32C of
// "fairq-spill 1" followed by the JSON, in hexadecimal. A string that is not UTF-8, the payload
// too, is {"base64":"..."}. A file *.damaged has the damaged lines of the file *.letters in the
// same places, and zeros between; it stays until you remove it. You may repair its lines and put
// them into a file *.letters with a number of its own, which needs no first line. Change the
// directory only while no program has it open. Only their owner can read the files.
//
// # Cost
//
// Write is one write to the file, under a lock, and with Options.Sync the time the disk takes to
// confirm it. Restore reads a file once, even in many calls, and writes a byte for each letter; it
// needs the memory of one letter. Each Restore writes a refused letter again. Open is O(files).
// There are no goroutines and no timers: an old file ends when the next letter is written.
package spill
