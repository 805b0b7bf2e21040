package member

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/witness"
)

// witnessing is a member of a cluster of two that holds no group: it only remembers.
func witnessing(t *testing.T, fs vfs.FS) *Member {
	t.Helper()
	dir, err := datadir.Open(datadir.Options{Path: "data", Name: "a", FS: fs, Rand: strings.NewReader(strings.Repeat("a", 64))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	if err := dir.Admit(ident.ClusterID{7}, 1, []byte("genesis")); err != nil {
		t.Fatal(err)
	}
	m := New(Options{Dir: dir, FS: fs, Name: "a", Now: testNow, Journal: journal.New(journal.Options{Boot: dir.Member().BootEpoch, Now: testNow})})
	m.mu.roster = membership.Roster{Version: 1, NextID: 3, Members: []membership.Member{
		{ID: 1, Name: "a", Incarnation: dir.Member().Incarnation, Role: membership.RoleVoter},
		{ID: 2, Name: "b", Incarnation: ident.Incarnation{2}, Role: membership.RoleVoter},
	}}
	return m
}

// greets is the hello of the other member.
func greets(boot, life uint64, groups ...peer.GroupPosition) peer.Hello {
	return peer.Hello{Cluster: ident.ClusterID{7}, Member: 2, Incarnation: ident.Incarnation{2}, Name: "b", BootEpoch: boot, Life: life, RosterVersion: 1, Groups: groups}
}

func at(term, entry, index uint64) peer.GroupPosition {
	return peer.GroupPosition{Term: term, LastDurable: ident.EntryID{Term: entry, Index: index}}
}

func says(typ pb.MessageType, term, index uint64, reject bool) *pb.Message {
	return &pb.Message{Type: typ.Enum(), From: proto.Uint64(2), To: proto.Uint64(1), Term: proto.Uint64(term), Index: proto.Uint64(index), Reject: proto.Bool(reject)}
}

func TestHello_RefusesAnotherIncarnation(t *testing.T) {
	t.Parallel()
	m := witnessing(t, vfs.NewMem())
	h := greets(1, 1)
	h.Incarnation = ident.Incarnation{3}
	_, refusal := m.Hello(h)
	if refusal == nil || refusal.Reason != peer.ReasonIncarnationChanged {
		t.Fatalf("Hello of another disk = %v, want %s", refusal, peer.ReasonIncarnationChanged)
	}
	if _, refusal = m.Hello(greets(1, 1)); refusal != nil {
		t.Fatalf("Hello = %v", refusal)
	}
}

// A disk that the recovered cluster gave up is refused, a kept one is heard although it has yet to learn of
// the recovery, and so is a survivor by those who have to learn.
func TestHello_RefusesAFormerHistory(t *testing.T) {
	t.Parallel()
	one, other := ident.History{Epoch: 1, Nonce: 11}, ident.History{Epoch: 1, Nonce: 12}
	for _, tc := range []struct {
		name         string
		ours, theirs ident.History
		member       ident.MemberID
		want         string
	}{
		{"the same life", one, one, 2, ""},
		{"kept, and behind", one, ident.History{}, 2, ""},
		{"given up", one, ident.History{}, 3, peer.ReasonFormerHistory},
		{"given up, since recovered by itself", one, other, 3, peer.ReasonOtherHistory},
		{"kept, but recovered by itself", one, other, 2, peer.ReasonOtherHistory},
		{"a survivor, to one that has to learn", ident.History{}, one, 2, ""},
		{"recovered once more than this one", one, ident.History{Epoch: 2, Nonce: 5}, 2, ""},
	} {
		m := witnessing(t, vfs.NewMem())
		m.mu.roster.History, m.mu.roster.NextID = tc.ours, 4
		h := greets(1, 1)
		h.Member, h.History = tc.member, tc.theirs
		got := ""
		if _, refusal := m.Hello(h); refusal != nil {
			got = refusal.Reason
		}
		if got != tc.want {
			t.Errorf("%s: Hello = %q, want %q", tc.name, got, tc.want)
		}
		events, err := m.opts.Journal.After(journal.ID{Boot: m.identity().BootEpoch}, 100)
		told := slices.ContainsFunc(events, func(e journal.Event) bool { return e.Fact.Kind() == journal.KindPeerRefused })
		if err != nil || told != (tc.want != "") {
			t.Errorf("%s: told of a refusal: %t, %v", tc.name, told, err)
		}
	}
}

// What a member acknowledges by its messages and its pings is remembered, and so is it after a restart.
func TestHello_RefusesWhoHasForgotten(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	m := witnessing(t, fs)
	if _, refusal := m.Hello(greets(3, 33, at(5, 4, 20))); refusal != nil {
		t.Fatalf("Hello = %v", refusal)
	}
	m.Deliver(2, 0, []*pb.Message{
		says(pb.MsgAppResp, 5, 30, false),
		says(pb.MsgAppResp, 5, 90, true), // a refusal acknowledges nothing
		says(pb.MsgPreVote, 9, 0, false), // promises nothing
	})
	m.Durable(2, []peer.GroupPosition{at(5, 5, 31)})
	forgotten := func(m *Member) {
		t.Helper()
		for _, tc := range []struct {
			hello peer.Hello
			says  string
		}{
			{greets(2, 44, at(5, 5, 31)), "boot 2 of its directory, boot 3 was here"},
			{greets(3, 44, at(5, 5, 31)), "boot 3 of its directory was another process"},
			{greets(4, 44, at(4, 4, 31)), "it is in term 4 of group 0, it spoke in term 5"},
			{greets(4, 44, at(5, 5, 30)), "ends at index 30, in this term (5) it acknowledged index 31"},
		} {
			if _, refusal := m.Hello(tc.hello); refusal == nil || refusal.Reason != peer.ReasonAmnesia || !strings.Contains(refusal.Detail, tc.says) {
				t.Errorf("Hello(%+v) = %v, want %s: %s", tc.hello, refusal, peer.ReasonAmnesia, tc.says)
			}
		}
	}
	forgotten(m)
	events, err := m.opts.Journal.After(journal.ID{Boot: m.identity().BootEpoch}, 100)
	if err != nil {
		t.Fatal(err)
	}
	refusals := slices.DeleteFunc(events, func(e journal.Event) bool { return e.Fact.Kind() != journal.KindPeerRefused })
	if len(refusals) != 1 { // of one process, however often it asks
		t.Errorf("%d events of refusals, want 1: %v", len(refusals), refusals)
	}
	m.savePromises()
	if err := m.opts.Dir.Close(); err != nil {
		t.Fatal(err)
	}
	m = witnessing(t, fs)
	forgotten(m)
	if _, refusal := m.Hello(greets(4, 44, at(5, 5, 31))); refusal != nil {
		t.Errorf("Hello of an honest restart = %v", refusal)
	}
}

// The messages that count are those that the machine holds back until the term is durable.
func TestDeliver_RemembersWhatPromises(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		msg  *pb.Message
		want witness.Mark
	}{
		{says(pb.MsgAppResp, 5, 30, false), witness.Mark{Spoke: 5, AckTerm: 5, AckIndex: 30}},
		{says(pb.MsgAppResp, 5, 30, true), witness.Mark{Spoke: 5}},
		{says(pb.MsgApp, 5, 30, false), witness.Mark{Spoke: 5}},
		{says(pb.MsgVote, 5, 30, false), witness.Mark{Spoke: 5}},
		{says(pb.MsgVoteResp, 5, 0, false), witness.Mark{Spoke: 5}},
		{says(pb.MsgHeartbeatResp, 5, 0, false), witness.Mark{Spoke: 5}},
		{says(pb.MsgPreVote, 5, 30, false), witness.Mark{}},
		{says(pb.MsgPreVoteResp, 5, 0, false), witness.Mark{}},
		{says(pb.MsgReadIndex, 0, 0, false), witness.Mark{}},
	} {
		m := witnessing(t, vfs.NewMem())
		m.Hello(greets(1, 1))
		m.Deliver(2, 0, []*pb.Message{tc.msg})
		if got := m.promises.mu.memory.Mark(2, 0); got != tc.want {
			t.Errorf("after %s: %+v, want %+v", tc.msg.GetType(), got, tc.want)
		}
	}
}

// A member that is told so closes its replicas, and does not open them at the next start.
func TestPeerChanged_HeedsARefusal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		cause   Cause
		latched bool
	}{
		{peer.ReasonAmnesia, CauseAmnesia, true},
		{peer.ReasonFormerHistory, CauseFormerHistory, true},
		{peer.ReasonDuplicate, CauseDuplicate, false},
		{peer.ReasonUnknownMember, "", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m := witnessing(t, vfs.NewMem())
			birth(t, m)
			k := m.newKeeper(0)
			m.mu.groups[0] = &group{keeper: k}
			m.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: 2}, Failure: peer.FailureRefusal, Refusal: &peer.Refusal{Reason: tc.reason, Detail: "it remembers"}})
			q := m.mu.groups[0].quarantine
			if tc.cause == "" {
				if q != nil {
					t.Fatalf("quarantined: %+v", q)
				}
				return
			}
			if q == nil || q.Cause != tc.cause || q.Detail != "refused by b: it remembers" {
				t.Fatalf("quarantine = %+v, want %s", q, tc.cause)
			}
			k.tryReseed(t.Context())
			again := m.newKeeper(0)
			if err := again.load(); err != nil {
				t.Fatal(err)
			}
			if (again.fenced() == tc.cause) != tc.latched {
				t.Errorf("at the next start fenced() = %q, latched must be %t", again.fenced(), tc.latched)
			}
			if r, _ := again.status(); r != nil {
				t.Errorf("a fence shows as a reseed: %+v", r)
			}
		})
	}
}

// birth gives m a group 0 with empty directories.
func birth(t *testing.T, m *Member) {
	t.Helper()
	dir := m.opts.Dir
	if _, err := dir.Group(0).Birth(func(log, state string) error {
		for _, d := range []string{log, state} {
			if err := m.opts.FS.MkdirAll(d, 0o700); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := dir.AddGroup(0); err != nil {
		t.Fatal(err)
	}
	m.mu.identity = dir.Member()
}

func testNow() time.Time { return time.Unix(1_700_000_000, 0) }
