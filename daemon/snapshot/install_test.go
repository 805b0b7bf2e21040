package snapshot

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/durable/durabletest"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/wal"
)

// I9: the state at i together with the entries i+1 to j is what the entries 1 to j give, wherever
// state was flushed, the artifact was staged, and the log was cut.
func TestInstall_IsWhatTheLogGives(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		j := rapid.Uint64Range(3, 60).Draw(r, "j")
		i := rapid.Uint64Range(2, j).Draw(r, "i")
		have := rapid.Uint64Range(2, j).Draw(r, "have")
		leader, follower := member(t, vfs.NewMem(), 1, i), member(t, vfs.NewMem(), 2, have)
		s := stager(t, leader)
		a := fetch(t, follower, local{s: s, term: 2, sent: new(int)})
		if err := errors.Join(leader.append(2, j, j), leader.applyTo(j)); err != nil {
			r.Fatal(err)
		}
		if err := follower.install(a); err != nil {
			r.Fatal(err)
		}
		wantLast := max(i, have) // a log that holds i stays
		if got := follower.log.LastIndex(); got != wantLast {
			r.Fatalf("the log ends at %d, want %d", got, wantLast)
		}
		if err := errors.Join(follower.append(2, j, j), follower.applyTo(j)); err != nil {
			r.Fatal(err)
		}
		got, err := content(follower.store)
		want, err2 := content(leader.store)
		if err := errors.Join(err, err2); err != nil || got != want {
			r.Fatalf("snapshot(%d) + log(%d..%d) is not log(1..%d): %v", i, i+1, j, j, err)
		}
		s.Close()
		if err := errors.Join(leader.close(), follower.close()); err != nil {
			r.Fatal(err)
		}
	})
}

// A follower whose log goes beyond the artifact with entries of another term, which were never
// committed, loses those and no others.
func TestInstall_DropsAConflictingSuffix(t *testing.T) {
	leader, follower := member(t, vfs.NewMem(), 1, 20), member(t, vfs.NewMem(), 2, 10)
	if err := errors.Join(follower.dir.SetVote(0, datadir.Vote{Term: 3, Vote: 2}), follower.append(3, 25, 10)); err != nil {
		t.Fatal(err)
	}
	a := fetch(t, follower, local{s: stager(t, leader), term: 5, sent: new(int)})
	if err := follower.install(a); err != nil {
		t.Fatal(err)
	}
	if base, last := follower.log.Base(), follower.log.LastIndex(); base != (ident.EntryID{Term: 2, Index: 20}) || last != 20 {
		t.Errorf("the log holds what follows %s up to %d, want nothing after 2/20", base, last)
	}
	if v := follower.dir.Vote(0); v != (datadir.Vote{Term: 5}) {
		t.Errorf("votes are %v, want term 5, in which nobody was voted for", v)
	}
}

// A vote of the term that the artifact comes from survives the install of a new log.
func TestInstall_KeepsTheVote(t *testing.T) {
	leader, follower := member(t, vfs.NewMem(), 1, 20), member(t, vfs.NewMem(), 2, 5)
	vote := datadir.Vote{Term: 5, Vote: 3}
	if err := follower.dir.SetVote(0, vote); err != nil {
		t.Fatal(err)
	}
	if err := follower.install(fetch(t, follower, local{s: stager(t, leader), term: 5, sent: new(int)})); err != nil {
		t.Fatal(err)
	}
	if v := follower.dir.Vote(0); v != vote {
		t.Errorf("votes are %v, want %v", v, vote)
	}
}

func TestContains(t *testing.T) {
	m := member(t, vfs.NewMem(), 1, 60)
	if err := m.log.DropHead(30); err != nil {
		t.Fatal(err)
	}
	base := m.log.Base()
	if base.Index == 1 {
		t.Fatal("nothing was dropped")
	}
	for _, c := range []struct {
		at   ident.EntryID
		want bool
		fits bool
	}{
		{ident.EntryID{Term: 2, Index: 40}, true, true},
		{ident.EntryID{Term: 2, Index: 60}, true, true},
		{base, true, true}, // the log begins right after it
		{ident.EntryID{Term: 2, Index: 61}, false, true},
		{ident.EntryID{Term: 3, Index: 40}, false, true},
		{ident.EntryID{Term: 2, Index: base.Index - 1}, false, false},
	} {
		if got, err := Contains(m.log, c.at); got != c.want || (err == nil) != c.fits {
			t.Errorf("Contains(%s) = %t, %v, want %t and fits %t", c.at, got, err, c.want, c.fits)
		}
	}
}

// I10: power may fail at every change of the disk, and, in a sample, again at every change of the boot
// that follows: the member opens, on the old generation or on the new one, whole, and the same one
// ever after; and what was told to be installed is.
func TestInstall_SurvivesTwoCrashesAtEveryChange(t *testing.T) {
	leader := member(t, vfs.NewMem(), 1, 24)
	s := stager(t, leader)
	old, err := content(member(t, vfs.NewMem(), 3, 6).store)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := content(leader.store)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		has     uint64 // last index of the follower's log; what is applied is 6
		newLast uint64
	}{
		{"log and state", 6, 24},
		{"state alone", 30, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const sample = 211 // a second crash is tried after every so many first ones
			crashes := 0
			src := local{s: s, term: 4, sent: new(int)}
			boot := func(fs vfs.FS) error {
				m, err := openDisk(fs, 2)
				if err != nil {
					return err
				}
				return m.close()
			}
			// look reports whether the new generation is current.
			look := func(fs vfs.FS) (installed bool, err error) {
				m, err := openDisk(fs, 2)
				if err != nil {
					return false, err
				}
				got, err := content(m.store)
				last, at := m.log.LastIndex(), m.store.Position().Applied.Index
				vote := m.dir.Vote(0)
				if err := errors.Join(err, m.close()); err != nil {
					return false, err
				}
				switch {
				case at == 6 && got == old && last == c.has:
					return false, nil
				case at == 24 && got == fresh && last == c.newLast && vote.Term == 4:
					return true, nil
				}
				return false, fmt.Errorf("state at %d, log up to %d, votes %v", at, last, vote)
			}
			durabletest.Sweep(t,
				func(fs vfs.FS) {
					m := member(t, fs, 2, 6)
					hs := &pb.HardState{Term: proto.Uint64(2), Vote: proto.Uint64(1), Commit: proto.Uint64(6)}
					if err := errors.Join(m.append(2, c.has, 6), m.log.Append([]wal.Frame{{HardState: hs}}, true), m.close()); err != nil {
						t.Fatal(err)
					}
				},
				func(fs vfs.FS) error {
					m, err := openDisk(fs, 2)
					if err != nil {
						return err
					}
					a, err := fetcher(m).Fetch(t.Context(), src, Request{Always: true})
					if err == nil {
						err = m.install(a)
					}
					return errors.Join(err, m.close())
				},
				func(t *testing.T, disk *vfs.MemFS, done bool) {
					if crashes++; crashes%sample == 0 {
						durabletest.Again(t, disk, boot, func(t *testing.T, disk *vfs.MemFS, _ bool) {
							if installed, err := look(disk); err != nil || done && !installed {
								t.Errorf("after a second crash: done %t, installed %t, %v", done, installed, err)
							}
						})
					}
					installed, err := look(disk)
					again, err2 := look(disk)
					if err := errors.Join(err, err2); err != nil || done && !installed || again != installed {
						t.Errorf("done %t, installed %t, then %t, %v", done, installed, again, err)
					}
				})
			t.Logf("%d crashes", crashes)
		})
	}
}
