package ctl

import (
	"net/http"

	"github.com/tidaldb/tidal/daemon/api"
)

// The exit codes: classes of outcome, the same for every verb. 2 is never used on purpose (Go ends
// with it on a panic), 126, 127 and what is above 128 belong to the shell and to signals. A code that
// a script does not know is a failure.
const (
	ExitOK           = 0
	ExitFailed       = 1
	ExitPartial      = 3
	ExitAuth         = 4
	ExitNotFound     = 5
	ExitRefused      = 6
	ExitUnreachable  = 7
	ExitNoLeader     = 8
	ExitUnknown      = 9
	ExitDegraded     = 10
	ExitCritical     = 11
	ExitDiffers      = 12
	ExitDrillFailed  = 20
	ExitInconclusive = 21
	ExitDrillAborted = 22
	ExitFaultsRemain = 23
	ExitUsage        = 64
	ExitBug          = 70
	ExitConfig       = 78
	ExitTimeout      = 124
	ExitInterrupted  = 130
	ExitTerminated   = 143
)

// ExitClass is one row of the table of exit codes.
type ExitClass struct {
	Code  int
	Class string // as in the brackets of an error and in its JSON
	Means string
}

// ExitClasses returns the whole table, by code.
func ExitClasses() []ExitClass {
	return []ExitClass{
		{ExitOK, "ok", "done, or the condition holds"},
		{ExitFailed, "failed", "the work failed or a member said no; the state is known"},
		{ExitPartial, "partial", "several targets were named and some failed"},
		{ExitAuth, "auth", "not authorised"},
		{ExitNotFound, "not_found", "no such member or thing"},
		{ExitRefused, "refused", "a safety check said no; nothing changed"},
		{ExitUnreachable, "unreachable", "no endpoint answered; nothing was sent that changes anything"},
		{ExitNoLeader, "no_leader", "members answer, but there is no leader or no quorum"},
		{ExitUnknown, "unknown", "sent, the answer was lost, and could not be looked up"},
		{ExitDegraded, "degraded", "status --exit-code: works, with less left to lose"},
		{ExitCritical, "critical", "status --exit-code: no leader or no quorum, or it could not be found out"},
		{ExitDiffers, "differs", "a comparison found differences"},
		{ExitDrillFailed, "drill_failed", "a drill failed; its faults are healed"},
		{ExitInconclusive, "drill_inconclusive", "a drill could not be judged; its faults are healed"},
		{ExitDrillAborted, "drill_aborted", "a drill was stopped; its faults are healed"},
		{ExitFaultsRemain, "faults_remain", "faults may remain; the message says until when"},
		{ExitUsage, "usage", "wrong usage, or a confirmation missing without a terminal"},
		{ExitBug, "bug", "a bug in tidalctl; it wrote a report"},
		{ExitConfig, "config", "the configuration is not usable"},
		{ExitTimeout, "timeout", "the time ran out; work may go on"},
		{ExitInterrupted, "interrupted", "Ctrl-C"},
		{ExitTerminated, "interrupted", "SIGTERM"},
	}
}

// classOf returns the class of an exit code; a code outside the table is a failure.
func classOf(code int) string {
	for _, c := range ExitClasses() {
		if c.Code == code {
			return c.Class
		}
	}
	return classOf(ExitFailed)
}

// exitOf returns the exit code of a problem: that of its code, or, when a newer member sent a code
// that this tidalctl does not know, that of its HTTP status.
func exitOf(p *api.Problem) int {
	if spec, ok := api.Lookup(p.Code); ok {
		return spec.Exit
	}
	switch p.Status {
	case http.StatusBadRequest:
		return ExitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitAuth
	case http.StatusNotFound, http.StatusGone:
		return ExitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return ExitRefused
	case http.StatusMisdirectedRequest, http.StatusServiceUnavailable:
		return ExitNoLeader
	case http.StatusGatewayTimeout:
		return ExitUnknown
	}
	return ExitFailed
}
