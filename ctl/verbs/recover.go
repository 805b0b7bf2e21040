package verbs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
)

// recoverTimeout bounds an apply: members that are lost are asked once more, and the survivor opens its
// replica anew.
const recoverTimeout = time.Minute

// recoverer plans and carries out recoveries. *client.Client implements it.
type recoverer interface {
	RecoverViews(context.Context) ([]api.RecoverView, error)
	Recover(context.Context, api.RecoverPlan) (api.RecoverAnswer, error)
}

type recoverOptions struct {
	Client  func() (recoverer, error)
	Out     *output.Printer
	Confirm func(ctx context.Context, given, name string, summary ctl.Summary) error
	Tell    func(string)
	Now     func() time.Time
	Nonce   func() uint64

	File        string
	Inspections []string
	Confirmed   string
	Timeout     time.Duration
}

// newRecoverCmd makes `tidalctl recover plan|apply`.
func newRecoverCmd(f *ctl.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Go on with what is left of a cluster that lost its majority for good",
		Long: `Go on with what is left of a cluster that lost its majority for good.

While a majority of the voters can come back, start them: nothing is lost then. Where their
disks are gone, "plan" finds the member whose log ends last and writes what would become of
everybody into a file for a person to read, and "apply" carries it out on that member. The
members that are given up are removed; should one of them come back, it is refused.`,
		Example:     "  tidalctl recover plan --out plan.json\n  tidalctl recover apply plan.json",
		GroupID:     ctl.GroupChange,
		Annotations: ctl.ImpactRead.Annotation(),
	}
	cmd.AddCommand(newRecoverPlanCmd(f, nil), newRecoverApplyCmd(f, nil))
	return cmd
}

func recoverOptionsOf(f *ctl.Factory, timeout time.Duration) *recoverOptions {
	return &recoverOptions{
		Client:  func() (recoverer, error) { return f.Client(f.Timeout(timeout)) },
		Confirm: f.ConfirmName,
		Tell:    f.Tell,
		Now:     time.Now,
		Nonce: func() uint64 {
			var b [8]byte
			_, _ = rand.Read(b[:]) // never fails
			return binary.LittleEndian.Uint64(b[:])
		},
	}
}

func newRecoverPlanCmd(f *ctl.Factory, runF func(context.Context, *recoverOptions) error) *cobra.Command {
	o := recoverOptionsOf(f, client.ReadTimeout)
	cmd := &cobra.Command{
		Use:   "plan --out FILE",
		Short: "Write down how to go on, and what may be lost",
		Long: `Write down how to go on, and what may be lost. Nothing is changed.

Every member that answers is asked how far its disk goes. For a member that cannot be
started, give what "tidald inspect -o json DIR" printed with --inspection. The plan names
the survivor, whose log ends last, the members that are kept beside it, and those that are
given up because they neither answer nor were inspected.

Exit 0: the file is written. 6: there is nothing to recover, or nothing to recover from.`,
		Example: `  tidalctl recover plan --out plan.json
  tidalctl recover plan --out plan.json --inspection us-west.json`,
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = f.Printer()
			if o.File == "" {
				return &ctl.UsageError{Code: "bad_argument", Detail: "--out is missing: the file that the plan is written to", Try: []string{"tidalctl recover plan --out plan.json"}}
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runRecoverPlan(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.File, "out", "", "write the plan to this file, which must not exist")
	cmd.Flags().StringSliceVar(&o.Inspections, "inspection", nil, "what tidald inspect -o json said of a member that is not running; repeat it for several")
	return cmd
}

func newRecoverApplyCmd(f *ctl.Factory, runF func(context.Context, *recoverOptions) error) *cobra.Command {
	o := recoverOptionsOf(f, recoverTimeout)
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Carry out a plan on its survivor",
		Long: `Carry out a plan on its survivor, which must be running. Its log, all of it, becomes what is
committed, the members that are given up are removed, and the cluster gets another history,
by which whoever comes back from the former one is recognised. It cannot be undone.

It is refused, and nothing is changed, while a member that the plan gives up answers, while
anybody has a leader, and where anything changed since the plan was made. The smaller cluster
grows again by joins. Applying a plan again that was carried out changes nothing.

Members that are given up are told so as soon as they reach the survivor, or it them, and take
part in nothing from then on. Where they are a majority of what the cluster was and start where
they reach nobody of the new one, they elect a leader and take writes until they do; those
writes are lost. Keep their machines off, or wipe their directories and let them join.

Exit 0: done. 6: refused. 9: the answer was lost; apply it again.`,
		Example:     "  tidalctl recover apply plan.json",
		Annotations: ctl.ImpactDestroy.Annotation(),
		Args:        cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Out, o.File, o.Timeout = f.Printer(), args[0], f.Timeout(recoverTimeout)
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runRecoverApply(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Confirmed, "confirm", "", "the name of the survivor: do not ask")
	return cmd
}

func runRecoverPlan(ctx context.Context, o *recoverOptions) error {
	const notMade = "no plan was made"
	views, err := readInspections(o.Inspections)
	if err != nil {
		return ctl.Failed(notMade, err)
	}
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notMade, err)
	}
	heard, err := c.RecoverViews(ctx)
	if err != nil && len(views) == 0 {
		return ctl.Failed(notMade, err)
	}
	p, err := makePlan(append(views, heard...), o.Nonce(), o.Now())
	if err != nil {
		return ctl.Failed(notMade, &ctl.RefusedError{Code: "no_plan", Detail: err.Error()})
	}
	if err := writePlan(o.File, p); err != nil {
		return ctl.Failed(notMade, err)
	}
	o.Tell("wrote " + o.File + "; read it, then: tidalctl recover apply " + o.File)
	return o.Out.Print(planDocument(p))
}

// writePlan makes a file that nobody had.
func writePlan(path string, p api.RecoverPlan) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// readInspections reads what tidald inspect printed of members that cannot be started. Of a directory that
// is in use its process has to be asked; one that is broken, or fenced, is not counted on: its member is
// given up, unless it answers.
func readInspections(files []string) ([]api.RecoverView, error) {
	var views []api.RecoverView
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var v struct {
			State   string `json:"state"`
			Latched string `json:"latched"`
			api.RecoverView
		}
		if err := json.Unmarshal(b, &v); err != nil || v.State == "" {
			return nil, &ctl.UsageError{Code: "bad_argument", Detail: path + " is not what tidald inspect -o json prints", Try: []string{"tidald inspect -o json DIR > " + path}}
		}
		switch {
		case v.State == "in_use":
			return nil, &ctl.RefusedError{Code: "no_plan", Detail: fmt.Sprintf("%s tells of %s while it was running: it has to answer, or to be stopped and inspected again", path, v.Name)}
		case v.State != "sound", v.Latched == "amnesia", v.Latched == "former_history":
			return nil, &ctl.RefusedError{Code: "no_plan", Detail: fmt.Sprintf("%s tells of a directory that must not be gone on from (%s): leave it out, and its member is given up", path, cmp.Or(v.Latched, v.State)), Try: []string{"tidald inspect DIR"}}
		}
		views = append(views, v.RecoverView)
	}
	return views, nil
}

func runRecoverApply(ctx context.Context, o *recoverOptions) error {
	const notDone = "the cluster was not recovered"
	p, err := readPlan(o.File)
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	if err := o.Confirm(ctx, o.Confirmed, p.Survivor.Name, ctl.Lines(planSummary(p)...)); err != nil {
		return ctl.Failed(notDone, err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	answer, err := c.Recover(ctx, p)
	if _, lost := errors.AsType[*client.LostError](err); lost && ctx.Err() == nil {
		o.Tell("the answer was lost; asking again, which changes nothing where it was carried out")
		answer, err = c.Recover(ctx, p)
	}
	if _, lost := errors.AsType[*client.LostError](err); lost {
		return ctl.Doubtful("it is not known whether the cluster was recovered", err, "tidalctl recover apply "+o.File)
	}
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	return o.Out.Print(recoveredDocument(answer))
}

// readPlan reads a plan as strictly as the survivor does, which has the last word.
func readPlan(path string) (api.RecoverPlan, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return api.RecoverPlan{}, err
	}
	var p api.RecoverPlan
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || p.Schema != api.RecoverPlanSchema || p.Survivor.HTTPAddr == "" {
		detail := path + " is not a plan"
		if err != nil {
			detail += ": " + err.Error()
		}
		return api.RecoverPlan{}, &ctl.UsageError{Code: "bad_argument", Detail: detail, Try: []string{"tidalctl recover plan --out " + path}}
	}
	return p, nil
}

// planSummary tells a person what the plan does.
func planSummary(p api.RecoverPlan) []string {
	lines := []string{fmt.Sprintf("The cluster goes on from %s, whose log ends at index %d of term %d.", p.Survivor.Name, p.Last.Index, p.Last.Term)}
	if names := planNames(p.Keeps); names != "" {
		lines = append(lines, "Kept beside it: "+names+".")
	}
	lines = append(lines, "Given up, for ever: "+planNames(p.GivesUp)+".")
	lines = append(lines, p.MayLose...)
	return append(lines, "It cannot be undone.")
}

func planNames(members []api.RecoverMember) string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	return strings.Join(names, ", ")
}

func planDocument(p api.RecoverPlan) output.Document {
	return output.Document{Kind: "recover-plan", Value: planAnswer{p}, Names: []string{p.Survivor.Name}, View: func(bool) output.View {
		table := output.Section{Columns: []output.Column{{Title: "member"}, {Title: "becomes"}, {Title: "why"}}}
		row := func(m api.RecoverMember, becomes string) {
			table.Rows = append(table.Rows, []string{m.Name, becomes, m.Why})
		}
		row(p.Survivor, "the survivor")
		for _, m := range p.Keeps {
			row(m, "kept")
		}
		for _, m := range p.GivesUp {
			row(m, "given up")
		}
		return output.View{Headline: "history " + p.HistoryWas + " becomes " + p.History, Sections: []output.Section{table}, Notes: p.MayLose}
	}}
}

// planAnswer is the plan that was written; its own schema is that of the file.
type planAnswer struct {
	Plan api.RecoverPlan `json:"plan"`
}

func recoveredDocument(a api.RecoverAnswer) output.Document {
	return output.Document{Kind: "recovered", Value: a, Names: []string{a.Member}, View: func(bool) output.View {
		table := output.Section{Columns: []output.Column{{Title: "what"}, {Title: "value"}}}
		table.Rows = [][]string{
			{"survivor", a.Member},
			{"history", a.History},
			{"last index of the former history", strconv.FormatUint(a.Last.Index, 10)},
			{"last index that was written", strconv.FormatUint(a.Index, 10)},
		}
		if a.Already {
			table.Rows = append(table.Rows, []string{"note", "it had been carried out before"})
		}
		return output.View{Sections: []output.Section{table}}
	}}
}
