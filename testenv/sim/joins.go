package sim

import daemon "github.com/tidaldb/tidal/daemon/member"

const playsJoins = false

func (m *member) invite(*daemon.Options) {}
