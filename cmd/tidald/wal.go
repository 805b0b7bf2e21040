package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/inspect"
)

func newWAL() *cobra.Command {
	parent := group("wal", "Look at the log of a member, running or stopped, without changing anything")
	var o walOptions
	f := parent.PersistentFlags()
	f.StringVarP(&o.output, "output", "o", "table", "table, or json")
	f.Uint32Var(&o.group, "group", 0, "which group's log, where DIR is a data directory")
	args := func(cmd *cobra.Command, args []string) error { return usage(cobra.ExactArgs(1)(cmd, args)) }
	const dir = `DIR is a data directory, the directory of a group (groups/0) or that of a log.`
	parent.AddCommand(&cobra.Command{
		Use:   "dump DIR",
		Short: "Print every frame of a log",
		Long: `Print every frame of a log: where it is, the hard state and the entries that came with it, and what
these are. With -o json one line a frame, then the verdict.

` + dir,
		Example: `  tidald wal dump /var/lib/tidal
  tidald wal dump -o json data/us-east/groups/0 | jq 'select(.kinds.roster)'`,
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(args[0], true) },
	}, &cobra.Command{
		Use:   "verify DIR",
		Short: "Say whether a log is sound",
		Long: `Say whether a log is sound. Exit code 0: it is; a write that a crash cut short is reported, the next
start leaves it out. 12: it is damaged, and the first damage is named. 5: there is no log.

` + dir,
		Example: `  tidald wal verify /var/lib/tidal`,
		Args:    args,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(args[0], false) },
	})
	return parent
}

type walOptions struct {
	output string
	group  uint32
}

func (o walOptions) run(dir string, dump bool) error {
	var out walPrinter
	switch o.output {
	case "table":
		out = &walTable{w: os.Stdout}
	case "json":
		out = &walJSON{json.NewEncoder(os.Stdout)}
	default:
		return usage(fmt.Errorf("-o %s: want table or json", o.output))
	}
	fs := vfs.Default
	log, err := inspect.Find(fs, dir, ident.GroupID(o.group))
	if _, ok := errors.AsType[*inspect.NotFoundError](err); ok {
		return &exitError{exitNotFound, err}
	}
	if err != nil {
		return err
	}
	v, err := log.Verify(fs)
	if err == nil && dump {
		err = log.Dump(fs, v, out.frame)
	}
	if err == nil {
		err = out.verdict(v)
	}
	if err == nil && v.Damage != nil {
		err = &exitError{exitDiffers, fmt.Errorf("the log in %s is damaged; nothing was changed", log.Dir)}
	}
	return err
}

// walPrinter prints a log in one format.
type walPrinter interface {
	frame(inspect.Frame) error
	verdict(inspect.Verdict) error
}

type walTable struct {
	w       io.Writer
	segment string // of the last frame
}

func (t *walTable) frame(f inspect.Frame) error {
	if f.Segment != t.segment {
		t.segment = f.Segment
		if _, err := fmt.Fprintf(t.w, "%s\n%10s %9s %6s %5s %10s  %-23s %s\n", f.Segment, "OFFSET", "BYTES", "TERM", "VOTE", "COMMIT", "ENTRIES", "KINDS"); err != nil {
			return err
		}
	}
	entries := "-"
	if f.Entries > 0 {
		entries = fmt.Sprintf("%s..%s", f.First, f.Last)
	}
	kinds := slices.Concat(counts(f.Kinds), counts(f.Records))
	if f.Sealed {
		kinds = append(kinds, "sealed")
	}
	_, err := fmt.Fprintln(t.w, strings.TrimRight(fmt.Sprintf("%10d %9d %6d %5d %10d  %-23s %s",
		f.Offset, f.Bytes, f.Term, f.Vote, f.Commit, entries, strings.Join(kinds, " ")), " "))
	return err
}

// counts renders m as name=count, by name.
func counts(m map[string]int) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, name+"="+strconv.Itoa(m[name]))
	}
	return all
}

func (t *walTable) verdict(v inspect.Verdict) error {
	if d := v.Damage; d != nil {
		_, err := fmt.Fprintf(t.w, "damaged: %s, segment %s, offset %d, from index %d: %s\nbefore it: %d frames, %d entries\n",
			d.Kind, d.Segment, d.Offset, d.Index, d.Detail, v.Frames, v.Entries)
		return err
	}
	r := v.Recovered
	if r.TornBytes > 0 {
		if _, err := fmt.Fprintf(t.w, "torn tail: %d bytes after entry %s; the next start leaves them out\n", r.TornBytes, r.Last); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(t.w, "ok: group %s, %d segments, %d frames; entries after %s up to %s; term %d, vote %d, commit %d\n",
		v.Group, r.Segments, v.Frames, r.Base, r.Last, r.HardState.GetTerm(), r.HardState.GetVote(), r.HardState.GetCommit())
	return err
}

type walJSON struct{ enc *json.Encoder }

// The lines of -o json. Fields are added, never renamed.
type (
	walEntryID struct {
		Term  uint64 `json:"term"`
		Index uint64 `json:"index"`
	}
	walHardState struct {
		Term   uint64 `json:"term"`
		Vote   string `json:"vote"` // member id; "0": nobody
		Commit uint64 `json:"commit"`
	}
	walFrame struct {
		Schema    string         `json:"schema"`
		Segment   string         `json:"segment"`
		Offset    int64          `json:"offset"`
		Bytes     int64          `json:"size_bytes"`
		HardState walHardState   `json:"hard_state"`
		Entries   int            `json:"entries"`
		First     *walEntryID    `json:"first"` // null: no entries
		Last      *walEntryID    `json:"last"`
		Kinds     map[string]int `json:"kinds"`
		Records   map[string]int `json:"records"`
		Sealed    bool           `json:"sealed"`
	}
	walDamage struct {
		Kind    string `json:"kind"` // log, record
		Segment string `json:"segment"`
		Offset  int64  `json:"offset"`
		Index   uint64 `json:"index"`
		Detail  string `json:"detail"`
	}
	walVerdict struct {
		Schema    string        `json:"schema"`
		OK        bool          `json:"ok"`
		Dir       string        `json:"dir"`
		Group     string        `json:"group"`
		Frames    int           `json:"frames"`
		Entries   int           `json:"entries"`
		TornBytes int64         `json:"torn_bytes"`
		Segments  *int          `json:"segments"` // null, as all below: damaged
		Base      *walEntryID   `json:"base"`
		Last      *walEntryID   `json:"last"`
		HardState *walHardState `json:"hard_state"`
		Damage    *walDamage    `json:"damage"` // null: sound
	}
)

func (j *walJSON) frame(f inspect.Frame) error {
	out := walFrame{
		Schema: "tidald.wal-frame/v1", Segment: f.Segment, Offset: f.Offset, Bytes: f.Bytes, Entries: f.Entries,
		HardState: walHardState{f.Term, strconv.FormatUint(f.Vote, 10), f.Commit},
		Kinds:     f.Kinds, Records: f.Records, Sealed: f.Sealed,
	}
	if f.Entries > 0 {
		out.First, out.Last = entryID(f.First), entryID(f.Last)
	}
	return j.enc.Encode(out)
}

func (j *walJSON) verdict(v inspect.Verdict) error {
	out := walVerdict{
		Schema: "tidald.wal-verdict/v1", OK: v.Damage == nil, Dir: v.Dir, Group: v.Group.String(),
		Frames: v.Frames, Entries: v.Entries, TornBytes: v.Recovered.TornBytes,
	}
	if hs := v.Recovered.HardState; hs != nil {
		out.Segments, out.Base, out.Last = new(v.Recovered.Segments), entryID(v.Recovered.Base), entryID(v.Recovered.Last)
		out.HardState = &walHardState{hs.GetTerm(), strconv.FormatUint(hs.GetVote(), 10), hs.GetCommit()}
	}
	if d := v.Damage; d != nil {
		out.Damage = &walDamage{d.Kind, d.Segment, d.Offset, d.Index, d.Detail}
	}
	return j.enc.Encode(out)
}

func entryID(id ident.EntryID) *walEntryID { return &walEntryID{id.Term, id.Index} }
