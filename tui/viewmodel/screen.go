package viewmodel

import "time"

// Choices is what the user chose.
type Choices struct {
	Cursor    string // name of the member; empty: the first row
	Order     Order
	Filter    string // members whose name, role or state contains it; "!x": does not
	Filtering bool   // the filter is being typed
	Help      bool
	Detail    bool

	// PausedAt is when the screen was paused; zero: it is not.
	PausedAt time.Time

	// UnlockedUntil is how long actions are allowed; zero: they are not.
	UnlockedUntil time.Time
}

// Setting is what a screen is shown in.
type Setting struct {
	Now       time.Time
	Interval  time.Duration // between two looks
	Endpoints []string      // that are asked
	RetryAt   time.Time     // the next look, while nobody answers
	Mode      string        // "REPLAY x10", "REC"; empty: live
	Message   string        // the answer to the last key
	Keys      []Key         // that do something now, most useful first
	Help      []Topic
}

// Key is a key and what it does, in a word and in a sentence.
type Key struct{ Key, Word, Does string }

// Topic is one paragraph of the help.
type Topic struct {
	Title string
	Lines []string
}

// Freshness says how far the data may be believed.
type Freshness int

// The grades. Connecting has no data yet. Old is marked as such. Stale is older than maxAge: it says
// nothing about now.
const (
	Connecting Freshness = iota
	Fresh
	Old
	Stale
)

// maxAge is the age above which data says nothing about now, unless the looks are that far apart.
const maxAge = 10 * time.Second

// Screen is everything that a frame shows, as text. What comes from elsewhere is not yet safe for a
// terminal: the view makes it so, in one place.
type Screen struct {
	Fresh  Freshness
	Silent bool // nobody answered the last look

	Cluster, ClusterID string // short and whole
	Lock               string
	Mode               string
	From               string // who shows the cluster, and how old that is: "us-west 0.4s ago"
	FromShort          string
	FromSeverity       Severity
	Every              string
	Clock, ClockShort  string

	Level         string // upper case
	LevelSeverity Severity
	Was           string // the level that old data had, and when: "was DEGRADED at 14:44:13Z"
	Quorum        Quorum
	Leader        string // with how long it has led: "us-east for 41m"
	LeaderName    string
	Term          string
	Commit        string
	Rate          string // "1.8k"; of entries a second
	RateBars      []int

	Why      []string
	Reach    string // who answers the observer
	Slowest  string // and who does not, or only slowly
	Sides    []Side
	Verdict  string // which side is served, where there are sides
	Faults   string // what keeps the sides apart, where that is a drill
	Members  []Member
	Known    int // members before the filter
	Answered int
	Cursor   int // index in Members; -1: none
	Order    string
	Filter   string
	Typing   bool
	LagSpan  string // how far the bars reach back: "60s"
	Events   []EventRow
	Since    string // when the events began
	Next     []Advice

	Endpoints []EndpointRow // while there is no answer to show, or none anymore
	Detail    []Field       // of the member at the cursor
	ShowMore  bool          // the detail was asked for
	ShowHelp  bool
	Help      []Topic
	Keys      []Key
	Message   string
}

// Quorum is the arithmetic of the voters.
type Quorum struct {
	Up, Voters, Needed, Spare string
	Cells                     []Voter // in the roster's order
	Missing                   []string
	Severity                  Severity
}

// Voter is one cell of the quorum bar.
type Voter struct {
	Name string
	Up   bool
}

// Side is one of several groups that name different leaders.
type Side struct {
	Label   string // A, B, …
	Members string
	Leader  string // with "?" when it cannot have a quorum
	Term    string
	Commit  string
	Motion  string // advancing, or frozen for how long
	Quorum  bool
}

// Member is one row.
type Member struct {
	Name, Role, Side string
	Leads            bool
	Reach            string
	Took, Heard      string
	Applied          string
	Lag, LagShort    string
	Delay            string
	Version          string
	State            string
	Severity         Severity
	Dim              bool // old

	past past // and where this member stood last
	row  int
}

// Bars returns the lag over time as at most n heights, oldest first; -1 is not known. It is worked out
// when it is drawn, for most rows of a large cluster are not.
func (m *Member) Bars(n int) []int { return bars(m.past.of(m.Name, m.row), n, lagLevel) }

// EventRow is one event as it is shown.
type EventRow struct {
	Time     string
	Severity Severity
	Member   string
	Text     string
}

// Advice is what to do next, with a command to paste.
type Advice struct{ Text, Command string }

// EndpointRow is what became of one endpoint.
type EndpointRow struct {
	Endpoint, Text string
	Severity       Severity
}

// Field is one line of the detail.
type Field struct {
	Label, Value string
	Severity     Severity
}
