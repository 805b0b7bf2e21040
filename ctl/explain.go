package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// Fault is an error as it is shown.
type Fault struct {
	Exit      int
	Code      string   // stable
	What      string   // did not happen
	Why       []string // with numbers and limits
	State     string   // what is left
	Try       []string // commands to paste
	Effect    api.Effect
	Retryable bool
	Details   any // for JSON; nil: none
}

// Explain is the one place where errors become words and exit codes. impact is that of the command
// that failed: one that only reads has changed nothing, whatever went wrong.
func Explain(err error, impact Impact) Fault {
	f := Fault{Exit: ExitFailed, Code: "failed", What: err.Error(), Effect: api.EffectNone}
	cause := err
	action, _ := errors.AsType[*ActionError](err)
	if action != nil {
		f.What, cause = action.What, action.Err
	}
	why := func(lines ...string) {
		if f.What != lines[0] {
			f.Why = lines
		}
	}
	why(cause.Error())

	// The order matters where one error wraps another: what the user did comes before what the
	// network did.
	if e, ok := errors.AsType[*UsageError](err); ok {
		f.Exit, f.Code, f.Try = ExitUsage, e.Code, e.Try
	} else if e, ok := errors.AsType[*output.FormatError](err); ok {
		f.Exit, f.Code, f.Try = ExitUsage, "unknown_format", []string{"tidalctl help formatting"}
		f.Details = map[string]any{"formats": output.Formats()}
		why(e.Error())
	} else if e, ok := errors.AsType[*FaultsRemainError](err); ok {
		f.Exit, f.Code, f.Effect, f.Retryable = ExitFaultsRemain, "faults_remain", api.EffectUnknown, true
		f.Details = map[string]any{"faults_until": e.Until.UTC()}
		f.Try = []string{"tidalctl faults list", "tidalctl heal --all"}
		f.State = fmt.Sprintf("faults may remain until %s (%s); they end by themselves", e.Until.UTC().Format(time.RFC3339), words.Age(max(time.Until(e.Until), 0)))
		why(e.Why...)
	} else if _, ok := errors.AsType[*ConfigError](err); ok {
		f.Exit, f.Code, f.Try = ExitConfig, "bad_config", []string{"tidalctl help environment"}
	} else if e, ok := errors.AsType[*InterruptedError](err); ok {
		f.Exit, f.Code, f.Retryable = e.exit(), "interrupted", true
		why(e.Error())
	} else if e, ok := errors.AsType[*TimeoutError](err); ok {
		f.Exit, f.Code, f.Try, f.Retryable = ExitTimeout, "timeout", e.Try, true
	} else if e, ok := errors.AsType[*NotFoundError](err); ok {
		f.Exit, f.Code, f.Try = ExitNotFound, e.Kind+"_not_found", e.Try
		f.Details = map[string]any{"name": e.Name, "nearest": nonNil(e.Nearest)}
	} else if e, ok := errors.AsType[*RefusedError](err); ok {
		f.Exit, f.Code, f.Try = ExitRefused, e.Code, e.Try
	} else if e, ok := errors.AsType[*ConditionError](err); ok {
		f.Exit, f.Code = e.Exit, classOf(e.Exit)
	} else if e, ok := errors.AsType[*bugError](err); ok {
		f.Exit, f.Code, f.Effect = ExitBug, "panic", api.EffectUnknown
		f.What = "tidalctl stopped at a bug of its own"
		f.Why = append([]string{e.Error()}, e.report...)
	} else if _, ok := errors.AsType[*DeclinedError](err); ok {
		f.Code = "declined"
	} else if e, ok := errors.AsType[*UnknownError](err); ok {
		f.Exit, f.Code, f.Effect = ExitUnknown, string(api.CodeOutcomeUnknown), api.EffectUnknown
		f.Details = map[string]any{"operation": e.Operation}
		f.Try = []string{"tidalctl ops show " + e.Operation, "tidalctl status"}
		why(e.Err.Error(), fmt.Sprintf("operation %s was asked for: %v", e.Operation, e.Asked))
	} else if e, ok := errors.AsType[*client.LostError](err); ok {
		f.Exit, f.Code, f.Effect = ExitUnknown, string(api.CodeOutcomeUnknown), api.EffectUnknown
		f.Try = []string{"tidalctl status"}
		if e.Operation != "" {
			f.Try = append([]string{"tidalctl ops show " + e.Operation}, f.Try...)
		}
		why(e.Error())
	} else if e, ok := errors.AsType[*client.UnreachableError](err); ok {
		f.Exit, f.Code, f.Retryable = ExitUnreachable, "no_endpoint", true
		f.Details = map[string]any{"endpoints": e.Tried}
		f.Try = []string{"tidalctl --endpoint http://HOST:9501 status"}
		lines := []string{fmt.Sprintf("no endpoint answered, of %d:", len(e.Tried))}
		for _, a := range e.Tried {
			lines = append(lines, a.String())
		}
		why(lines...)
	} else if e, ok := errors.AsType[*client.ProblemError](err); ok {
		explainProblem(&f, e)
	} else if errors.Is(err, context.DeadlineExceeded) {
		f.Exit, f.Code, f.Retryable = ExitTimeout, "timeout", true
		why("nobody answered in time; --timeout gives more")
	}
	if impact == ImpactRead {
		f.Effect = api.EffectNone
	}
	if action != nil {
		if action.Effect != "" {
			f.Effect = action.Effect
		}
		if action.Try != nil {
			f.Try = action.Try
		}
	}
	if f.State == "" {
		f.State = stateOf(f.Effect)
	}
	return f
}

// explainProblem fills f from what a member answered.
func explainProblem(f *Fault, e *client.ProblemError) {
	p := e.Problem
	f.Exit, f.Code, f.Effect, f.Retryable = exitOf(p), string(p.Code), p.Effect, p.Retryable
	detail := p.Detail
	if detail == "" {
		detail = p.Title
	}
	who := e.Member
	if who == "" {
		who = e.Endpoint
	}
	f.Why = []string{who + ": " + detail}
	details := map[string]any{"member": e.Member, "endpoint": e.Endpoint}
	if p.Measured != nil && p.Threshold != nil {
		number := func(n float64) string { return strings.TrimSpace(strconv.FormatFloat(n, 'f', -1, 64) + " " + p.Unit) }
		f.Why = append(f.Why, "measured "+number(*p.Measured)+", limit "+number(*p.Threshold))
		details["measured"], details["threshold"], details["unit"] = *p.Measured, *p.Threshold, p.Unit
	}
	for _, c := range p.Checks {
		if !c.OK && c.Detail != detail {
			f.Why = append(f.Why, "check "+c.Code+": "+c.Detail)
		}
	}
	if len(p.Checks) > 0 {
		details["checks"] = p.Checks
	}
	if p.Leader != "" {
		f.Why = append(f.Why, "the leader is "+p.Leader)
		details["leader"] = p.Leader
	}
	if p.RetryAfterMS > 0 {
		f.Why = append(f.Why, "it may work in "+words.Age(time.Duration(p.RetryAfterMS)*time.Millisecond))
		details["retry_after_ms"] = p.RetryAfterMS
	}
	f.Details = details
	switch {
	case p.Try != "":
		f.Try = []string{p.Try}
	case f.Exit == ExitAuth:
		f.Try = []string{"TIDALCTL_TOKEN_FILE=FILE tidalctl status"}
	}
}

func stateOf(e api.Effect) string {
	switch e {
	case api.EffectUnknown:
		return "unknown: it may have happened, or happen yet"
	case api.EffectApplied:
		return "changed, but the rest did not follow"
	}
	return "nothing changed"
}

// text writes f for people.
func (f Fault) text(w io.Writer, color, ascii bool) {
	var b strings.Builder
	word := "error:"
	if color {
		word = "\x1b[1;31m" + word + "\x1b[0m"
	}
	clean := func(s string) string { return words.Clean(s, ascii) }
	fmt.Fprintf(&b, "%s %s  [%s: %s]\n", word, clean(f.What), classOf(f.Exit), clean(f.Code))
	part := func(label string, lines ...string) {
		for i, line := range lines {
			if i > 0 {
				label = ""
			}
			fmt.Fprintf(&b, "  %-5s  %s\n", label, clean(line))
		}
	}
	part("why", f.Why...)
	part("state", f.State)
	part("try", f.Try...)
	io.WriteString(w, b.String()) // nobody is left to tell when this fails
}

// json writes f as one line.
func (f Fault) json(w io.Writer) {
	p := output.Printer{Out: w, Format: output.Format{Name: output.JSON}, Compact: true}
	_ = p.Print(output.Document{Kind: "error", Value: ErrorDocument{ // nobody is left to tell when this fails
		f.Code, classOf(f.Exit), f.Exit, f.What, strings.Join(f.Why, "\n"), f.State,
		f.Effect, f.Retryable, f.Details, nonNil(f.Try),
	}})
}

// ErrorDocument is a Fault for programs.
type ErrorDocument struct {
	Code      string     `json:"code"`
	Class     string     `json:"class"`
	Exit      int        `json:"exit"`
	Message   string     `json:"message"`
	Why       string     `json:"why"`
	State     string     `json:"state"`
	Effect    api.Effect `json:"effect"`
	Retryable bool       `json:"retryable"`
	Details   any        `json:"details"` // depends on the code; null: none
	Try       []string   `json:"try"`
}

// nonNil makes a list that JSON shows as [] where there is none.
func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
