package ops

import (
	"slices"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/peer"
)

// Whatever a status or a refusal names, tidalctl explain explains, and every explanation says what to do.
func TestExplanations_CoverWhatIsNamed(t *testing.T) {
	t.Parallel()
	all := map[string]api.Explanation{}
	for _, x := range api.Explanations() {
		if _, twice := all[x.Code]; twice {
			t.Errorf("%s is explained twice", x.Code)
		}
		all[x.Code] = x
		if x.Title == "" || x.Means == "" || len(x.About) == 0 || len(x.Try) == 0 && !slices.Contains(x.About, api.AboutError) && x.Code != "other_history" {
			t.Errorf("%+v says too little", x)
		}
	}
	for about, codes := range map[string][]string{
		api.AboutQuarantine: {
			string(member.CauseLogCorrupt), string(member.CauseLogWrite), string(member.CauseStateError), string(member.CauseCommittedMissing),
			string(member.CauseAmnesia), string(member.CauseVotesBehind), string(member.CauseDuplicate), string(member.CauseFormerHistory),
			string(member.CauseUpgradeRequired), string(member.CauseAssertion),
		},
		api.AboutRefusal: {
			peer.ReasonAmnesia, peer.ReasonDuplicate, peer.ReasonFormerHistory, peer.ReasonOtherHistory, peer.ReasonIncarnationChanged,
			peer.ReasonUnknownMember, peer.ReasonNotBorn, peer.ReasonWrongCluster, peer.ReasonRemoved, peer.ReasonExpired,
		},
		api.AboutStart: {"copied_data_dir", "corrupt_data_dir", "lost_group", "locked", "foreign_data_dir"},
	} {
		for _, code := range codes {
			if !slices.Contains(all[code].About, about) {
				t.Errorf("%s is not explained as a %s: %+v", code, about, all[code])
			}
		}
	}
}
