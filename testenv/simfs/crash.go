package simfs

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Crash is a class of what a disk holds after the power was cut.
type Crash uint8

// The classes. All keep what was synced.
const (
	Strict     Crash = iota // nothing else
	Everything              // all else: the process died, the kernel did not
	Prefix                  // what was issued before some moment
	Subset                  // any sectors, any names
	Torn                    // a prefix, the last write of which tore inside a sector
	Garbage                 // a prefix; files that grew have their new size, with garbage in it
	NamesFirst              // all names, no bytes: renamed before written
	BytesFirst              // all bytes, no names
)

// Crashes returns every class.
func Crashes() []Crash {
	return []Crash{Strict, Everything, Prefix, Subset, Torn, Garbage, NamesFirst, BytesFirst}
}

// String returns the name of the class.
func (c Crash) String() string {
	return [...]string{"strict", "everything", "prefix", "subset", "torn", "garbage", "names-first", "bytes-first"}[c]
}

// Crash returns what the disk holds when the power is cut now: a new file system, with its power on.
// The old one is left as it is. Equal histories, classes and seeds give equal images.
func (fs *FS) Crash(class Crash, seed uint64) *FS {
	defer fs.enter()()
	d := &draw{class: class, rng: rand.New(rand.NewPCG(seed, uint64(class)))}
	d.cut = d.rng.Uint64N(fs.seq + 1) // operations up to this one survive, where a prefix does
	image := &FS{nextID: fs.nextID}
	image.root = d.inode(fs.root, map[*inode]*inode{}, image)
	return image
}

// draw decides what survives.
type draw struct {
	class Crash
	rng   *rand.Rand
	cut   uint64
}

func (d *draw) inode(n *inode, done map[*inode]*inode, image *FS) *inode {
	if c, ok := done[n]; ok {
		return c // another name of it
	}
	c := &inode{id: n.id, dir: n.dir, path: n.path}
	done[n] = c
	if !n.dir {
		c.disk = d.content(n)
		c.live = slices.Clone(c.disk)
		image.used += int64(len(c.live))
		return c
	}
	survivors := map[string]*inode{}
	for name, child := range n.diskNames {
		survivors[name] = child
	}
	for _, op := range n.pendingNames {
		if d.nameSurvives(op) {
			for _, s := range op.sets {
				setName(survivors, s)
			}
		}
	}
	c.names, c.diskNames = map[string]*inode{}, map[string]*inode{}
	for _, name := range sortedNames(survivors) {
		child := d.inode(survivors[name], done, image)
		c.names[name], c.diskNames[name] = child, child
	}
	return c
}

func (d *draw) nameSurvives(op nameOp) bool {
	switch d.class {
	case Everything, NamesFirst:
		return true
	case Prefix, Torn, Garbage:
		return op.seq <= d.cut
	case Subset:
		return d.rng.IntN(2) == 0
	default:
		return false
	}
}

func (d *draw) content(n *inode) []byte {
	b := slices.Clone(n.disk)
	for _, op := range n.pending {
		switch d.class {
		case Everything, BytesFirst:
			b = op.applyTo(b)
		case Prefix, Garbage:
			if op.seq <= d.cut {
				b = op.applyTo(b)
			}
		case Torn:
			if op.seq < d.cut {
				b = op.applyTo(b)
			} else if op.seq == d.cut && op.data != nil {
				b = d.torn(op).applyTo(b)
			}
		case Subset:
			b = d.sectors(b, op)
		}
	}
	if d.class == Garbage && len(n.live) > len(b) {
		old := len(b)
		b = append(b, make([]byte, len(n.live)-old)...)
		if d.rng.IntN(2) == 0 { // half of the disks have zeros there
			for i := old; i < len(b); i++ {
				b[i] = byte(d.rng.Uint32())
			}
		}
	}
	return b
}

// torn keeps the front of a write: whole sectors, then a part of one.
func (d *draw) torn(op dataOp) dataOp {
	op.data = op.data[:d.rng.IntN(len(op.data)+1)]
	return op
}

// sectors keeps any of the sectors of a write.
func (d *draw) sectors(b []byte, op dataOp) []byte {
	if op.data == nil {
		if d.rng.IntN(2) == 0 {
			return op.applyTo(b)
		}
		return b
	}
	for at := 0; at < len(op.data); {
		end := min(at+SectorBytes-int((op.off+int64(at))%SectorBytes), len(op.data))
		if d.rng.IntN(2) == 0 {
			b = writeAt(b, op.off+int64(at), op.data[at:end])
		}
		at = end
	}
	return b
}

// Clone returns a copy of the file system as it is, un-synced operations included: what an image of a
// disk taken aside would restore. Its power is on and it has no faults.
func (fs *FS) Clone() *FS { return fs.Crash(Everything, 0) }

// Lossless reports, for a test of the tests, whether nothing is left to be lost.
func (fs *FS) Lossless() error {
	defer fs.enter()()
	var walk func(at string, n *inode) error
	walk = func(at string, n *inode) error {
		if len(n.pending)+len(n.pendingNames) > 0 {
			return fmt.Errorf("%s has %d writes and %d names that are not synced", at, len(n.pending), len(n.pendingNames))
		}
		for _, name := range sortedNames(n.names) {
			if err := walk(at+"/"+name, n.names[name]); err != nil {
				return err
			}
		}
		return nil
	}
	return walk("", fs.root)
}
