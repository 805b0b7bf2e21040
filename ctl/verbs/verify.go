package verbs

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// verifier has the members compare their states. *client.Client implements it.
type verifier interface {
	statusReader
	Verify(context.Context, api.VerifyRequest) (api.Verified, client.Source, error)
}

type verifyOptions struct {
	Client  func() (verifier, error)
	Out     *output.Printer
	Confirm func(ctx context.Context, given, name string, summary ctl.Summary) error

	Trust     string
	Confirmed string
	Timeout   time.Duration
}

func newVerifyCmd(f *ctl.Factory, runF func(context.Context, *verifyOptions) error) *cobra.Command {
	o := &verifyOptions{
		Client:  func() (verifier, error) { return f.Client(client.ReadTimeout) },
		Confirm: f.ConfirmName,
	}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare what the members' states add up to",
		Long: `Compare what the members' states add up to.

The leader puts a check into the log, and every member reports the digest of its state
right after it. A digest is right when a majority of the voters report it; whoever has
another one goes into quarantine and is installed again by itself. Where no digest has
a majority nobody is to blame: --trust NAME says whose state is right, and every other
member that differs is installed again from it.

Exit 0: all members have the same. 12: states differ. 3: some member did not report.`,
		Example: `  tidalctl verify
  tidalctl verify -o json
  tidalctl verify --trust us-east`,
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactChange.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Timeout = f.Printer(), f.Timeout(api.DefaultVerifyTimeoutMS*time.Millisecond)
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runVerify(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Trust, "trust", "", "the `member` whose state counts as right")
	cmd.Flags().StringVar(&o.Confirmed, "confirm", "", "the trusted member's `name`, instead of typing it")
	if err := cmd.RegisterFlagCompletionFunc("trust", completeMembers(f)); err != nil {
		panic(err) // the flag is there
	}
	return cmd
}

func runVerify(ctx context.Context, o *verifyOptions) error {
	const notDone = "the states were not compared"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	if o.Trust != "" {
		summary := fmt.Sprintf("Every member whose state differs from that of %s is installed again from it. What only they have is lost.", o.Trust)
		if err := o.Confirm(ctx, o.Confirmed, o.Trust, ctl.Lines(summary)); err != nil {
			return ctl.Failed(notDone, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout+answerReserve)
	defer cancel()
	ms := min(max(o.Timeout.Milliseconds(), api.MinVerifyTimeoutMS), api.MaxVerifyTimeoutMS)
	v, source, err := c.Verify(ctx, api.VerifyRequest{Trust: o.Trust, TimeoutMS: ms})
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	if err := o.Out.Print(verifyDocument(v, source, health(ctx, c))); err != nil {
		return err
	}
	switch {
	case v.Differs:
		return &ctl.ConditionError{Exit: ctl.ExitDiffers}
	case !v.OK:
		return &ctl.ConditionError{Exit: ctl.ExitPartial}
	}
	return nil
}

// verifyAnswer is what verify prints.
type verifyAnswer struct {
	api.Verified
	asSeen
}

func verifyDocument(v api.Verified, source client.Source, s *api.Status) output.Document {
	a := verifyAnswer{v, seenBy(source, s)}
	var names []string
	for _, m := range v.Members {
		names = append(names, m.Name)
	}
	return output.Document{Kind: "verify", Value: a, Names: names, View: func(bool) output.View {
		out := headOf(s)
		out.Notes = append(out.Notes, verifyNote(v))
		t := output.Section{Columns: []output.Column{{Title: "member"}, {Title: "role"}, {Title: "state"}, {Title: "check", Right: true}, {Title: "digest"}}}
		for _, m := range v.Members {
			index, sum := words.Unknown, words.Unknown
			if m.Index != nil {
				index = words.Count(*m.Index)
			}
			if m.Sum != nil {
				sum = fmt.Sprintf("%.16s", *m.Sum)
			}
			t.Rows = append(t.Rows, []string{m.Name, m.Role, m.State, index, sum})
		}
		out.Sections = []output.Section{t}
		return out
	}}
}

func verifyNote(v api.Verified) string {
	switch {
	case v.OK:
		return fmt.Sprintf("all %d members have the same state at index %s", len(v.Members), words.Count(v.Index))
	case v.Differs && v.Trust != "":
		return fmt.Sprintf("states differ at index %s; what differs from %s goes into quarantine and is installed again", words.Count(v.Index), v.Trust)
	case v.Differs:
		return fmt.Sprintf("states differ at index %s", words.Count(v.Index))
	}
	return fmt.Sprintf("not every member has reported its state at index %s", words.Count(v.Index))
}
