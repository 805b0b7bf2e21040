package simfs

import (
	"slices"
	"strings"
)

// Kill returns what the next process finds when this one is killed while the power stays on: the
// kernel goes on, so everything written is there, synced or not, and may be lost yet. Locks are free;
// faults and quota end with the process. The old file system is left as it is.
func (fs *FS) Kill() *FS {
	defer fs.enter()()
	next := &FS{nextID: fs.nextID, seq: fs.seq}
	done := map[*inode]*inode{} // an inode may have several names, on the disk and for the process
	var clone func(n *inode) *inode
	names := func(from map[string]*inode) map[string]*inode {
		to := make(map[string]*inode, len(from))
		for _, name := range sortedNames(from) {
			to[name] = clone(from[name])
		}
		return to
	}
	clone = func(n *inode) *inode {
		if n == nil {
			return nil
		}
		if c, ok := done[n]; ok {
			return c
		}
		c := &inode{id: n.id, dir: n.dir, live: slices.Clone(n.live), disk: slices.Clone(n.disk), pending: slices.Clone(n.pending)}
		done[n] = c
		if !n.dir {
			return c
		}
		c.names, c.diskNames = names(n.names), names(n.diskNames)
		for _, op := range n.pendingNames {
			sets := make([]nameSet, len(op.sets))
			for i, s := range op.sets {
				sets[i] = nameSet{s.name, clone(s.to)}
			}
			c.pendingNames = append(c.pendingNames, nameOp{op.seq, sets})
		}
		return c
	}
	next.root = clone(fs.root)
	next.used = next.root.liveBytes()
	return next
}

// liveBytes counts the bytes of the files below n, by each of their names.
func (n *inode) liveBytes() int64 {
	total := int64(len(n.live))
	for _, c := range n.names {
		total += c.liveBytes()
	}
	return total
}

// Unsynced returns the paths of the files below dir that have writes which a crash may lose, among
// those whose path contains part.
func (fs *FS) Unsynced(dir, part string) []string {
	defer fs.enter()()
	top, err := fs.find("stat", dir)
	if err != nil {
		return nil
	}
	// It is asked after every sync, and mostly there is nothing: a path is made only of what is found.
	var found []string
	var walk func(at []string, n *inode)
	walk = func(at []string, n *inode) {
		if len(n.pending) > 0 {
			if path := strings.Join(at, "/"); strings.Contains(path, part) {
				found = append(found, path)
			}
		}
		for name, child := range n.names {
			walk(append(at, name), child)
		}
	}
	walk([]string{strings.TrimSuffix(dir, "/")}, top)
	slices.Sort(found)
	return found
}

// Files returns the paths of all files below dir, sorted.
func (fs *FS) Files(dir string) []string {
	defer fs.enter()()
	top, err := fs.find("stat", dir)
	if err != nil {
		return nil
	}
	var found []string
	var walk func(at string, n *inode)
	walk = func(at string, n *inode) {
		if !n.dir {
			found = append(found, at)
		}
		for _, name := range sortedNames(n.names) {
			walk(at+"/"+name, n.names[name])
		}
	}
	walk(strings.TrimSuffix(dir, "/"), top)
	return found
}

// Used returns how many bytes all files have.
func (fs *FS) Used() int64 {
	defer fs.enter()()
	return fs.used
}

// Forget turns the power on and ends every fault, so that a process which has died may close what it
// held. Nobody looks at this disk any more.
func (fs *FS) Forget() {
	defer fs.enter()()
	fs.off, fs.cutAt, fs.fault, fs.quota = false, 0, nil, 0
}
