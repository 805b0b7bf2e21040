package member

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/tidaldb/tidal/daemon/replica"
)

// How often the room on the disk is measured, which costs microseconds: seldom while there is far more
// than the reserve. The reserve has to last for what is written between two measurements.
const (
	diskEvery = 200 * time.Millisecond
	diskRests = time.Second
	farMore   = 10 // times the reserve
)

// reserve is the part of a disk that client writes may not use up: it is for votes, for the entries
// of a leader that has room, for the flushes and compactions of state, and for the start of a member on
// a full disk, which copies the tail of its log. Running out for good is worse than refusing: a write
// of the log that fails is final.
//
//	free space of   |<- last ->|                  |<- low ->|<- high ->|
//	the disk        0 ........ half of low ....... low ...... 5/4 low ......... total
//	                nothing is  no client writes           (again)    everything
//	                taken
type reserve struct {
	low  uint64 // below it clients may not write
	high uint64 // from it on they may again
	last uint64 // below it nothing is taken from a leader either; from 3/2 of it on it is again
}

// reserveOf is 5 % of the disk, but at least 256 MiB and at most 1 GiB; of a disk below 2 GiB, an
// eighth. All groups of a member share it. It covers what the fastest disk takes in between two
// measurements, two segments of the log (segmentBytes) and three memtables of state.
func reserveOf(total uint64) reserve {
	low := min(max(total/20, 256<<20), 1<<30, total/8)
	return reserve{low: low, high: low + low/4, last: low / 2}
}

// segmentBytes is the size of a log's segments: 64 MiB, and less on a disk of less than 4 GiB, so that
// a segment and its spare stay a small part of it.
func segmentBytes(total uint64) int64 {
	const most = 64 << 20
	return int64(min(max(total/64&^(1<<20-1), 1<<20), most))
}

// fullness is what a disk has room for.
type fullness int

const (
	fullnessNone fullness = iota // everything
	fullnessFull                 // no client writes
	fullnessLast                 // nothing of a leader either
)

// next says how full a disk is that has free bytes left and was as full as was says. Between two marks
// it stays what it was.
func (r reserve) next(was fullness, free uint64) fullness {
	switch {
	case free < r.last:
		return fullnessLast
	case was == fullnessLast && free < r.last+r.last/2:
		return fullnessLast
	case free < r.low:
		return fullnessFull
	case was != fullnessNone && free < r.high:
		return fullnessFull
	}
	return fullnessNone
}

// Disk is the disk that holds the data directory, as last measured.
type Disk struct {
	TotalBytes, FreeBytes uint64
	ReserveBytes          uint64 // below this much free, clients may not write
	Full                  bool   // they may not
	Exhausted             bool   // nor is anything taken from a leader
}

// watchDisk measures until ctx ends.
func (m *Member) watchDisk(ctx context.Context) {
	pulse := m.beat.Every(diskEvery)
	defer pulse.Stop()
	for {
		m.measureDisk()
		if d := m.disk(); d.ReserveBytes > 0 && d.FreeBytes/farMore > d.ReserveBytes {
			pulse.Every(diskRests)
		} else {
			pulse.Every(diskEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-pulse.C:
			pulse.Took()
		}
	}
}

// measureDisk measures once and tells every replica. Where the file system does not say, there is
// room.
func (m *Member) measureDisk() {
	usage, err := m.opts.FS.GetDiskUsage(m.opts.DataDir)
	if err != nil || usage.TotalBytes == 0 {
		return
	}
	r := reserveOf(usage.TotalBytes)
	m.mu.Lock()
	was := m.mu.disk.fullness()
	is := r.next(was, usage.AvailBytes)
	m.mu.disk = Disk{
		TotalBytes: usage.TotalBytes, FreeBytes: usage.AvailBytes, ReserveBytes: r.low,
		Full: is >= fullnessFull, Exhausted: is == fullnessLast,
	}
	disk := m.mu.disk
	replicas := make([]*replica.Replica, 0, len(m.mu.groups))
	for _, g := range m.mu.groups {
		if g.replica != nil {
			replicas = append(replicas, g.replica)
		}
	}
	m.mu.Unlock()
	for _, r := range replicas {
		r.SetRoom(disk.room())
	}
	if is != was {
		level := slog.LevelWarn
		if is == fullnessNone {
			level = slog.LevelInfo
		}
		m.log.Log(context.Background(), level, "room on the disk changed", slog.Bool("full", disk.Full), slog.Bool("exhausted", disk.Exhausted),
			slog.Uint64("free_bytes", disk.FreeBytes), slog.Uint64("reserve_bytes", disk.ReserveBytes))
	}
}

func (d Disk) fullness() fullness {
	switch {
	case d.Exhausted:
		return fullnessLast
	case d.Full:
		return fullnessFull
	}
	return fullnessNone
}

func (d Disk) room() replica.Room {
	room := replica.Room{Exhausted: d.Exhausted}
	if d.Full {
		r := reserveOf(d.TotalBytes)
		room.Full = &replica.DiskFullError{FreeBytes: d.FreeBytes, NeedBytes: r.high}
	}
	return room
}

func (m *Member) disk() Disk {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.disk
}

// followingRoom is how much room this member needs to go on taking what a leader sends.
func (m *Member) followingRoom() uint64 { return reserveOf(m.disk().TotalBytes).last }

// segmentBytes is what the logs of this member are opened with.
func (m *Member) segmentBytes() int64 {
	return segmentBytes(cmp.Or(m.disk().TotalBytes, math.MaxUint64))
}
