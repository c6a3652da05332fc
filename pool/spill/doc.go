// Package spill keeps dead letters in files, and puts them back when there is room for them again.
//
//	letters, err := spill.Open[Job]("letters", nil)
//	p := pool.Func(handler, &pool.Options[Job]{DeadLetters: letters.Write})
//	n, err := letters.Restore(ctx, spill.Into(queue, 0.5)) // until the queue is half full
//	err = letters.Close()
//
// # What is promised
//
//   - A letter that Write has returned nil for survives the end of the process, kill -9 too; with
//     Options.Sync also that of the machine. A letter that Write has returned an error for was not
//     taken.
//   - Restore hands letters out in the order in which they were written, each until a sink has
//     taken it: at least once. Twice it is only if the process ends, or the disk fails, between
//     the sink's return and the one byte that is written then. So a kill repeats one letter at
//     most.
//   - Nothing is dropped in silence. Every letter has a checksum. What cannot be read, such as the
//     last one of a process that was killed while it wrote, is set aside in a file *.damaged, and
//     Restore returns [ErrDamaged]. It goes on with the next letter, so damage costs those that it
//     hit.
//   - A letter that cannot be put back now does not keep others from it: see [ErrRefused].
//   - Strings are what they were, also those that are not UTF-8. Times are in UTC, and an error is
//     a [*task.Error] with the message, and the code if there was one.
//   - A file of a newer version of the format is left alone, and Restore returns [ErrVersion].
//
// # What is not promised
//
//   - That a letter is not in a file if its Write returned an error, or had not returned when the
//     process was killed. It may be restored if the disk did not let it be taken back, or if the
//     whole of it was written.
//   - That repeats are so few after a loss of power. Even with Options.Sync it is left to the
//     system when it writes down that a letter is done.
//   - Order between letters that a sink has refused and others.
//
// # Processes
//
// One process at a time has a directory open; the others get [ErrInUse]. That is a lock of the
// system's on the file named lock, and ends with the process, however that ends. Files of a
// process that was killed are restored by the next one. On systems other than Windows, Linux,
// macOS, the BSDs and illumos nothing keeps a second process out; there, and where a network's
// file system does not pass locks on, it is up to you, and two would damage each other's files.
// Programs that run more than once on a machine need a directory each.
//
// # Files
//
// The names are 000000000001.letters and so on, in the order of writing. A file is text, and
// begins with a line that has the version of the format. Each other line is a letter:
//
//	fairq-spill 1 158ef5cf
//	- a88b38e2 {"task":{"id":7,"key":"alice","state":4},"payload":"{\"To\":\"a@b.c\"}","reason":2,"attempts":3,"at":"2026-01-02T03:04:05Z"}
//
// The mark is - for a letter that is waiting and X for one that is done. The checksum is the
// CRC-32C of "fairq-spill 1" followed by the JSON, in hexadecimal. A string that is not UTF-8, the
// payload too, is {"base64":"..."}. A file *.damaged has what was set aside of the file *.letters
// in the same places, and zeros between; it stays until somebody removes it. Its lines may be
// repaired and put back in a file *.letters with a number of its own; that needs no first line.
// Change the directory only while nobody has it open. Its files are for their owner alone to read.
//
// # Cost
//
// Write is one write to the file, under a lock, and with Options.Sync the time the disk takes to
// confirm it. Restore reads a file once, even if it takes many calls, and writes a byte for each
// letter; it needs the memory of one letter. What is refused is written again by each Restore that
// comes to it. Open is O(files). There are no goroutines and no timers: a file that is old enough
// ends when the next letter is written.
package spill
