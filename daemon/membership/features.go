package membership

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidaldb/tidal/daemon/ident"
)

// CapabilityMissingError refuses what some members would not understand.
type CapabilityMissingError struct {
	Capabilities ident.Capabilities // what they lack
	Members      []string           // who lacks it, or has not said, by id
}

func (e *CapabilityMissingError) Error() string {
	return fmt.Sprintf("capability %s is missing on %s", e.Capabilities, strings.Join(e.Members, ", "))
}

// Activate lets the log hold what c stands for, from the record on. It is empty where it may already. One
// that is down counts with what it said last. Error: *CapabilityMissingError.
func (v View) Activate(c ident.Capabilities) (Record, error) {
	missing := c &^ v.Activated
	if missing == 0 {
		return Record{}, nil
	}
	if who := v.Roster.Lacking(missing); len(who) > 0 {
		return Record{}, &CapabilityMissingError{Capabilities: missing, Members: who}
	}
	return Record{Features: missing, Does: "feature"}, nil
}

// Lacking returns who would not understand an entry that needs want: every member but those in without
// that has not said that it does. A learner that was never heard of is not asked.
func (r Roster) Lacking(want ident.Capabilities, without ...ident.MemberID) []string {
	var names []string
	for _, m := range r.Members {
		neverHeard := m.Role == RoleLearner && m.BootEpoch == 0
		if !m.Capabilities.Has(want) && !neverHeard && !slices.Contains(without, m.ID) {
			names = append(names, m.Name)
		}
	}
	return names
}
