package api

import "fmt"

// ProblemType is the media type of every error body (RFC 9457).
const ProblemType = "application/problem+json"

// Effect says what is known of a request that was refused or lost.
type Effect string

// The effects. None: nothing changed, a retry is safe. Applied: something changed, and not what was asked
// for. Unknown: it may still happen; only a retry with an idempotency key or an operation id is safe.
const (
	EffectNone    Effect = "none"
	EffectApplied Effect = "applied"
	EffectUnknown Effect = "unknown"
)

// Problem is the body of every error answer. As a Go error it travels from the engine's edge to the
// handler, and on the other side from the HTTP client to the exit code.
type Problem struct {
	Code      Code   `json:"code"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Status    int    `json:"status"`
	Retryable bool   `json:"retryable"`
	Effect    Effect `json:"effect"`
	// Field names the input that was refused, as the caller wrote it: "weight", "limit".
	Field string `json:"field,omitempty"`
	// Measured and Threshold stand together where a rule with a number refused.
	Measured  *float64 `json:"measured,omitempty"`
	Threshold *float64 `json:"threshold,omitempty"`
	Unit      string   `json:"unit,omitempty"`
	// Floor of a compacted problem: after it, everything that there is can be read.
	Floor string `json:"floor,omitempty"`
	// Checks are those of a verb that was refused, all of them.
	Checks []Check `json:"checks,omitempty"`
	// Leader is the member that would have taken the request, where one is known.
	Leader string `json:"leader,omitempty"`
	// Try is a tidalctl command that leads on.
	Try          string `json:"try,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%s: %s", p.Code, p.Detail) }

// NewProblem fills what the table knows of code. detail is one sentence for people, with numbers.
func NewProblem(code Code, detail string) *Problem {
	c := code.spec()
	return &Problem{Code: c.Code, Title: c.Title, Detail: detail, Status: c.Status, Retryable: c.Retryable, Effect: c.Effect}
}
