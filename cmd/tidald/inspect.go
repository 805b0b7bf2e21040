package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/inspect"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/ops"
)

func newInspect() *cobra.Command {
	var output string
	var group uint32
	cmd := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Say what a data directory is: whose, how far it goes, and what is wrong with it",
		Long: `Say what a data directory is: who the member is, its term, the last entry of its log, how much of it is
known to be committed, what its state reflects, the membership at its end, and whether anything is wrong:
a copy, a damaged or missing file, a lost group, a damaged log. It reads a directory that is whole, broken
or in use, and changes nothing; "tidalctl explain CODE" says more of what it finds.

Where a cluster has lost its majority for good, the JSON of every directory that is left is what
"tidalctl recover plan --inspection FILE" takes for a member that is not running.

Exit code 0: nothing is wrong. 5: no member ever was in it. 12: something is wrong, and is printed.
1: it could not be read.`,
		Example: `  tidald inspect /var/lib/tidal
  tidald inspect -o json /var/lib/tidal > us-west.json`,
		Args: func(cmd *cobra.Command, args []string) error { return usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(_ *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return usage(fmt.Errorf("-o %s: want table or json", output))
			}
			return runInspect(os.Stdout, vfs.Default, args[0], ident.GroupID(group), output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, or json")
	cmd.Flags().Uint32Var(&group, "group", 0, "which group")
	return cmd
}

// The states of a directory.
const (
	inspectedSound  = "sound"  // nothing was found, nobody has it open
	inspectedInUse  = "in_use" // a process has it open: what was read moves
	inspectedBroken = "broken" // there are findings
)

// inspection is what -o json prints. Fields are added, never renamed. What could not be read is zero.
type inspection struct {
	Schema   string    `json:"schema"`
	Path     string    `json:"path"`
	State    string    `json:"state"` // sound, in_use, broken
	PID      int       `json:"pid"`   // that has it open; 0: none, or not visible from here
	Findings []finding `json:"findings"`
	Latched  string    `json:"latched"` // reason of the reseed, or of the fence, that is latched; empty: none
	Vote     string    `json:"vote"`    // id voted for in the term; empty: nobody
	api.RecoverView
}

type finding struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func runInspect(w io.Writer, fs vfs.FS, dir string, group ident.GroupID, output string) error {
	d, err := inspect.ReadDirectory(fs, dir, group)
	if inspect.IsNone(err) {
		return &exitError{exitNotFound, err}
	}
	if err != nil {
		return err
	}
	v := inspectionOf(d)
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(v)
	} else {
		err = printInspection(w, v, d)
	}
	if err == nil && len(d.Findings) > 0 {
		err = &exitError{exitDiffers, errors.New(dir + " must not be started from as it is; nothing was changed")}
	}
	return err
}

func inspectionOf(d inspect.Directory) inspection {
	v := inspection{Schema: "tidald.inspection/v1", Path: d.Path, State: inspectedSound, PID: d.PID, Findings: []finding{}, Latched: d.Latched}
	v.RecoverView = ops.ViewOf(member.Extent{
		Identity: d.Identity, Term: max(d.Term, d.Vote.Term), Last: d.Last, Applied: d.Applied.Index, Commit: d.Commit, Digest: d.Digest, Roster: d.Roster, Conf: d.Conf,
	})
	v.Group, v.Running = d.Group.String(), d.PID != 0
	if d.Vote.Vote != 0 {
		v.Vote = ident.MemberID(d.Vote.Vote).String()
	}
	for _, f := range d.Findings {
		v.Findings = append(v.Findings, finding(f))
	}
	switch {
	case len(d.Findings) > 0:
		v.State = inspectedBroken
	case d.PID != 0:
		v.State = inspectedInUse
	}
	return v
}

func printInspection(w io.Writer, v inspection, d inspect.Directory) error {
	var err error
	line := func(what, format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%-12s "+format+"\n", append([]any{what}, args...)...)
		}
	}
	switch v.State {
	case inspectedInUse:
		line("state", "in use by process %d; what was read moves", v.PID)
	default:
		line("state", "%s", v.State)
	}
	for _, f := range v.Findings {
		line("finding", "%s: %s", f.Code, f.Detail)
	}
	if v.Latched != "" {
		line("latched", "%s", v.Latched)
	}
	if v.Name != "" {
		line("member", "%s, id %s, incarnation %s, boot %d", v.Name, orNone(v.ID), v.Incarnation, v.BootEpoch)
		line("cluster", "%s, history %s", v.ClusterID, v.History)
	}
	if d.Vote.Term > 0 {
		line("votes", "term %d, vote for %s", d.Vote.Term, orNone(v.Vote))
	}
	if d.Log {
		line("log", "ends at index %d of term %d; committed at least up to index %d", v.Last.Index, v.Last.Term, v.CommitIndex)
	}
	if d.State {
		line("state at", "index %d", v.AppliedIndex)
		if v.Digest != nil {
			line("digest", "%s", *v.Digest)
		}
		line("roster", "version %d", v.Roster.Version)
		for _, m := range v.Roster.Members {
			line("", "%s: id %s, %s, grpc %s, http %s", m.Name, m.ID, m.Role, m.GRPCAddr, m.HTTPAddr)
		}
	}
	return err
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
