package wal

// KeepFrom returns the highest index that DropHead takes and that leaves at least bytes of frames:
// where the oldest segment that is needed for that begins, or FirstIndex(). It waits for an Append
// under way.
func (l *Log) KeepFrom(bytes int64) uint64 {
	l.writer.Lock()
	defer l.writer.Unlock()
	x := &l.mu.index
	for n := len(x.segments) - 1; n > 0; n-- {
		if bytes -= x.segments[n].end; bytes <= 0 {
			return min(x.segments[n].base.Index, x.hs.commit) + 1
		}
	}
	return x.base.Index + 1
}

// BytesAfter is about how many bytes of frames follow entry index; at most a segment too many. It waits
// for an Append under way.
func (l *Log) BytesAfter(index uint64) int64 {
	l.writer.Lock()
	defer l.writer.Unlock()
	x := &l.mu.index
	if index >= x.lastIndex() {
		return 0
	}
	var bytes int64
	for n := len(x.segments) - 1; n >= 0; n-- {
		bytes += x.segments[n].end
		if x.segments[n].base.Index <= index {
			break
		}
	}
	return bytes
}
