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
//   - Nothing is dropped silently. Every letter has a number and a checksum, and every file ends
//     where the next one begins. If a line of a file is damaged, or letters are missing, also at
//     its end, Restore returns [ErrDamaged] with the file and the line. It restores the other
//     letters, and the file stays until you remove it.
//   - A letter that cannot be put back now does not block others: see [ErrRefused].
//   - Strings keep their bytes, even if they are not UTF-8. Times are in UTC, and an error is a
//     [*task.Error] with the message, and the code if there was one.
//
// # Not promised
//
//   - That missing letters are noticed at the end of the last file, because no other one follows.
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
// its files. There is no such lock on systems other than Windows, Linux, macOS, the BSDs and
// illumos, nor on network file systems without locks. There two processes would damage each
// other's files. Each running program needs a directory of its own.
//
// # Files
//
// The name of a file has its number and that of its first letter: 000000001-1.letters. It is text:
// a line with the version of the format, and a line for each letter.
//
//	fairq-spill 1
//	- b0a848a7 2 {"Payload":"{\"To\":\"\"}","Reason":2,"Task":{"Attempts":3,"ID":7,"Key":"alice"}}
//
// The mark is - for a waiting letter and X for a done one. The checksum is the CRC-32C of the rest
// of the line, in hexadecimal. The rest is the number of the letter and its JSON. A string that is
// not UTF-8, the payload too, is {"base64":"..."}. Change the directory only while no program has
// it open. Only their owner can read the files.
//
// # Cost
//
// Write is one write to the file, under a lock, and with Options.Sync the time the disk takes to
// confirm it. Restore reads a file once, even in many calls, and writes a byte for each letter; it
// needs the memory of one line. Each Restore writes a refused letter again. Open is O(files),
// and reads the last file. There are no goroutines and no timers: an old file ends when the next
// letter is written.
package spill
