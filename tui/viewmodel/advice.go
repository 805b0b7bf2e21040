package viewmodel

import (
	"slices"
	"strings"

	"github.com/tidaldb/tidal/daemon/api"
)

// The most that is told at once: who reads it is in a hurry.
const maxAdvice = 2

// advice says what to do next, with commands that can be pasted. There is none while all is well.
func (b *builder) advice() []Advice {
	if !b.Known() || b.failing > 0 {
		if b.failing == 0 {
			return nil
		}
		return []Advice{{"nobody answers, which may be your network; ask a member that is not in the list:", "tidalctl --endpoint http://HOST:9501 status"}}
	}
	st := b.good.Status
	var out []Advice
	say := func(text, command string) {
		for _, a := range out {
			if a.Command == command {
				return
			}
		}
		if len(out) < maxAdvice {
			out = append(out, Advice{text, command})
		}
	}
	drill := slices.ContainsFunc(st.Regions, func(r api.Region) bool { return len(r.Faults) > 0 })
	if drill {
		say("faults of a drill are in force; to end them now:", "tidalctl heal --all")
	}
	for _, r := range st.Health.Reasons {
		switch r.Code {
		case "no_leader", "no_quorum":
			text := "nothing is written until a leader is elected:"
			if down := b.silent(api.RoleVoter); len(down) > 0 {
				text = "start tidald on " + list(down, 3) + ", then:"
			}
			say(text, "tidalctl wait --for=leader --timeout 2m")
		case "member_partitioned":
			if !drill { // or else it is cut off on purpose
				say(r.Member+" answers but hears no leader; look at its peer address:", "tidalctl members show "+quote(r.Member))
			}
		case "leaders_disagree":
			say("the side without a quorum does not commit; see who is on which:", "tidalctl status -o wide")
		case "member_quarantined":
			say(r.Member+" holds data that must not be served; its disk is kept as it is:", "tidalctl quarantine show "+quote(r.Member))
		case "divergence_unresolved":
			say("voters have different states and no majority has the same; see who has what:", "tidalctl verify")
		case "member_unreachable":
			say("start tidald on "+list(b.silent(""), 3)+", or look at the network, then:", "tidalctl wait --for=healthy --timeout 2m")
		case "disk_full":
			say("make room on the disk of "+r.Member+"; how much there is:", "tidalctl members show "+quote(r.Member))
		case "clock_skew":
			say("the clock of "+r.Member+" is wrong; what rests on it:", "tidalctl explain clock_skew")
		case "member_not_ready", "member_behind":
			say(r.Member+" may only need time:", "tidalctl wait --for=healthy --timeout 5m")
		}
	}
	return out
}

// silent names the members of a role that do not answer; of any role when it is empty.
func (b *builder) silent(role string) []string {
	st := b.good.Status
	var names []string
	for i := range st.Regions {
		if r := &st.Regions[i]; !r.Reachable && r.Role != api.RoleRemoved && (role == "" || r.Role == role) {
			names = append(names, r.Name)
		}
	}
	return names
}

// quote writes s as one word of a shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:", r)
	}
	if s != "" && s[0] != '-' && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
