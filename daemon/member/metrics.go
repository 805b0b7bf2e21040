package member

import "github.com/prometheus/client_golang/prometheus"

// metrics are the member's numbers. It lives as long as its registry.
type metrics struct {
	handovers      *prometheus.CounterVec
	installs       prometheus.Counter
	reseedRequired *prometheus.GaugeVec // by group
	giveups        prometheus.Counter
	refusedRosters prometheus.Counter
	pending        *prometheus.GaugeVec // by member; the registrar's
	reseedRefused  *prometheus.GaugeVec // by group
	reseedsInARow  *prometheus.GaugeVec // by group
	quarantined    *prometheus.GaugeVec // by group and cause
	divergence     *prometheus.GaugeVec // by group
	scrubs         *prometheus.CounterVec
	scrubbed       prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, m *Member) *metrics {
	gauge := func(name, help string, value func(Disk) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(m.disk()) })
	}
	out := &metrics{handovers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidal_member_handovers_total", Help: "Transfers of leadership that this member began by itself.",
	}, []string{"reason"}), // quarantined, disk_full, disk_slow
		installs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_member_installs_total", Help: "Artifacts installed in the place of a replica's data.",
		}),
		reseedRequired: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidal_replica_reseed_required", Help: "1 while a replica waits to be installed again from another member.",
		}, []string{"group"}),
		giveups: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_membership_removal_giveups_total", Help: "Removed members that never acknowledged and are told no more.",
		}),
		refusedRosters: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_membership_refused_rosters_total", Help: "Rosters that were committed and did not follow the one in force; they are built anew.",
		}),
		reseedRefused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidal_replica_reseed_refused", Help: "1 while a reseed waits because the leader does not permit it, or an operator has to.",
		}, []string{"group"}),
		reseedsInARow: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidal_replica_reseeds_in_a_row", Help: "Reseeds of a replica since its state was verified last.",
		}, []string{"group"}),
		quarantined: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidal_replica_quarantined", Help: "1 while a replica is in quarantine for this cause.",
		}, []string{"group", "cause"}),
		divergence: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidal_replica_divergence_unresolved", Help: "1 while voters have different states and no majority has the same.",
		}, []string{"group"}),
		scrubs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_replica_scrubs_total", Help: "Passes over everything that a replica's state holds.",
		}, []string{"result"}), // sound, rot, ended
		scrubbed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_replica_scrubbed_bytes_total", Help: "Bytes of state read by scrubs.",
		}),
	}
	out.pending = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tidal_membership_promotion_pending_entries", Help: "Entries that a learner is behind this leader, for as long as it is not promoted.",
	}, []string{"member"})
	if reg != nil {
		reg.MustRegister(out.handovers, out.installs, out.reseedRequired, out.giveups, out.refusedRosters, out.pending,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "tidal_membership_waiting_verbs", Help: "Membership changes that wait for their turn on this leader.",
			}, func() float64 { return float64(m.registrar.length()) }),
			out.reseedRefused, out.reseedsInARow, out.quarantined, out.divergence, out.scrubs, out.scrubbed,
			gauge("tidal_member_disk_free_bytes", "Room on the disk of the data directory.", func(d Disk) float64 { return float64(d.FreeBytes) }),
			gauge("tidal_member_disk_reserve_bytes", "With less room than this, clients may not write.", func(d Disk) float64 { return float64(d.ReserveBytes) }),
			gauge("tidal_member_disk_full", "1 while clients may not write because of it.", func(d Disk) float64 {
				if d.Full {
					return 1
				}
				return 0
			}))
	}
	return out
}
