// Package simfs is a file system in memory that loses power, fills up, fails and rots on purpose. It
// implements Pebble's vfs.FS, the seam through which every byte of a member reaches a disk, so that
// the code that runs in production is the code that is crashed here.
//
// It knows two states of everything: what the process sees, and what is on the disk. A write changes
// the first; only a sync moves it to the second, file by file and directory by directory, as POSIX
// promises and not a bit more: a new name is on the disk when its directory was synced, the bytes
// behind it when the file was. What was not synced is kept as an ordered list of operations, and
// Crash draws from it what the disk holds after the power is back: nothing, a prefix, any subset of
// sectors, a torn sector, garbage beyond the old end, names before bytes or bytes before names.
//
// Equal seeds give equal images: every draw is made over operations in the order they were issued.
//
// Callers: crash and error sweeps, the simulator. Nothing of it is linked into a binary.
package simfs
