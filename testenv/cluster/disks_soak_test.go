//go:build soak && linux

package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// smallLog keeps the log of a member on a small disk.
func smallLog() []string {
	return []string{"--set", "replication.log_segment=1MiB", "--set", "replication.log_keep=8MiB"}
}

// A disk that is put back from an image of last week is refused by everybody who saw more. It never votes
// again, also after a restart, while the others go on.
func TestSoak_RestoredOldDisk(t *testing.T) {
	dir, disk := imageDisk(t)
	tidald := Binary(t)
	c := Start(t, tidald, Options{Dir: dir, Args: smallLog()})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	a := takeApart(t, c, tidald)
	disk.detach()
	old := disk.snapshot()
	disk.mount()

	a.start("us-east", "us-west", "ap-south")
	a.leads("us-east", "us-west", "ap-south")
	l.During(func() { l.WaitAcked(200) })
	a.stopAll()
	disk.detach()
	disk.putBack(old)
	disk.mount()

	a.start("us-east", "us-west", "ap-south")
	local := a.quarantined("us-east", "amnesia")
	if detail := local.Groups[0].Quarantine.Detail; !strings.Contains(detail, "forgotten what it promised") {
		t.Errorf("quarantined with %q", detail)
	}
	t.Log(local.Groups[0].Quarantine.Detail)
	a.leads("us-west", "ap-south")
	t.Log(a.saw("us-west", "peer_refused").Text, a.saw("ap-south", "peer_refused").Text)
	var st api.Status
	if err := a.Get(a.Member("us-west"), "/cluster/status", &st); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(st.Health.Reasons, func(r api.Reason) bool {
		return r.Code == "member_quarantined" && r.Member == "us-east" && r.Detail == "amnesia"
	}) || st.Quorum.Up != 2 || st.Quorum.Spare != 0 {
		t.Errorf("status %+v %+v", st.Health, st.Quorum)
	}
	others := []string{"us-west", "ap-south"}
	a.only(others...)
	l.During(func() { l.WaitAcked(200) })

	// What it was told holds where nobody is left who could tell it.
	a.stopAll()
	a.all()
	a.start("us-east")
	a.quarantined("us-east", "amnesia")
	if code, v := a.inspect(a.Member("us-east").Dir); code != 0 || v["latched"] != "amnesia" || v["state"] != "in_use" {
		t.Errorf("inspect = %d %v", code, v)
	}
	a.start(others...)
	a.leads(others...)
	a.only(others...)
	a.audit(l, others...)
}

// Two processes on copies of one disk that are both alive are both refused. Once both are stopped, the one
// that people choose goes on.
func TestSoak_TwoLiveCopiesOfADisk(t *testing.T) {
	dir, disk := imageDisk(t)
	tidald := Binary(t)
	c := Start(t, tidald, Options{Dir: dir, Args: smallLog()})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	a := takeApart(t, c, tidald)
	disk.detach()
	twin := &diskImage{t, disk.snapshot(), filepath.Join(t.TempDir(), "twin")}
	if err := os.Mkdir(twin.at, 0o700); err != nil {
		t.Fatal(err)
	}
	disk.mount()
	twin.mount()
	t.Cleanup(twin.unmount)

	ports := freePorts(t, 2)
	twinAt := api.DevMember{Name: "us-east", HTTP: "http://127.0.0.1:" + strconv.Itoa(ports+1), Dir: twin.at}
	a.start("us-east", "us-west", "ap-south")
	a.run("twin", "us-east", "--data-dir", twin.at, "--http", "127.0.0.1:"+strconv.Itoa(ports+1), "--grpc", "127.0.0.1:"+strconv.Itoa(ports+2))
	a.quarantined("us-east", "duplicate_identity")
	a.Until("the twin is quarantined", func() error {
		var local api.LocalStatus
		if err := a.Get(twinAt, "/cluster/status/local", &local); err != nil {
			return err
		}
		if len(local.Groups) == 0 || local.Groups[0].Quarantine == nil || local.Groups[0].Quarantine.Cause != "duplicate_identity" {
			return fmt.Errorf("%+v", local.Groups)
		}
		return nil
	})
	a.leads("us-west", "ap-south")
	told := false
	for _, name := range []string{"us-west", "ap-south"} {
		for _, e := range events(c, name) {
			if e.Kind == "identity_duplicated" {
				told = true
				t.Log(name, e.Text)
			}
		}
	}
	if !told {
		t.Error("nobody tells of a duplicate")
	}
	a.end("twin", syscall.SIGTERM)
	a.end("us-east", syscall.SIGTERM)
	twin.detach()

	a.start("us-east")
	a.leads("us-east", "us-west", "ap-south")
	l.During(func() { l.WaitAcked(200) })
	a.audit(l, "us-east", "us-west", "ap-south")
}

// Two of four voters are no majority: what is left takes no write and says so, loses nothing, and goes on
// when one of the others is back. Everybody losing power meanwhile changes nothing.
func TestSoak_TwoStoppedOfFour(t *testing.T) {
	tidald := Binary(t)
	c := Start(t, tidald, Options{Nodes: 4})
	names := []string{"us-east", "us-west", "ap-south", "eu-west"}
	l := NewLedger(c, 8)
	a := takeApart(t, c, tidald)
	a.start(names...)
	a.leads(names...)
	l.During(func() { l.WaitAcked(100) })
	a.end("ap-south", syscall.SIGTERM)
	a.end("eu-west", syscall.SIGKILL)
	noQuorum := func() {
		t.Helper()
		a.Until("the status to say that there is no quorum", func() error {
			var st api.Status
			if err := a.Get(a.Member("us-east"), "/cluster/status", &st); err != nil {
				return err
			}
			if st.Health.Level != api.HealthCritical || st.Quorum.Up != 2 || st.Quorum.Needed != 3 || len(st.Regions) != 4 {
				return fmt.Errorf("%+v %+v", st.Health, st.Quorum)
			}
			return nil
		})
	}
	noQuorum()
	if code, _, words := a.at("us-east", "status", "--exit-code"); code != 11 {
		t.Errorf("status --exit-code = %d, want 11: %s", code, words)
	}
	acked := l.Acked()
	if _, err := a.Do(http.MethodPost, a.Member("us-west"), "/items", map[string]string{"id": "too-few"}, nil); err == nil {
		t.Error("a write was acknowledged without a majority")
	}
	a.powerLoss()
	a.start("us-east", "us-west")
	noQuorum()
	if l.Acked() != acked {
		t.Error("a write was acknowledged without a majority")
	}
	a.start("eu-west")
	a.leads("us-east", "us-west", "eu-west")
	a.only("us-east", "us-west", "eu-west")
	l.During(func() { l.WaitAcked(100) })
	a.all()
	a.start("ap-south")
	a.leads(names...)
	l.During(func() { l.WaitAcked(100) })
	a.audit(l, names...)
}

// A cluster that lost two of three voters goes on from the third by a plan that a person has read. While
// it need not be, or must not be, it is refused; who comes back of those that were given up is not heard.
func TestSoak_RecoverFromOneOfThree(t *testing.T) {
	tidald := Binary(t)
	c := Start(t, tidald, Options{})
	l := NewLedger(c, 8)
	a := takeApart(t, c, tidald)
	lost := []string{"us-east", "ap-south"}
	a.start("us-east", "us-west", "ap-south")
	a.leads("us-east", "us-west", "ap-south")
	l.During(func() { l.WaitAcked(200) })
	l.Check() // every member has applied everything

	plan := filepath.Join(a.Dir, "plan.json")
	refused := func(what string, code int, out string, says string) {
		t.Helper()
		if code != 6 || !strings.Contains(out, says) {
			t.Errorf("%s: exit %d, want 6 and %q:\n%s", what, code, says, out)
		}
	}
	code, _, words := a.at("us-west", "recover", "plan", "--out", plan)
	refused("a plan for a cluster that works", code, words, "has a leader")
	a.end("us-east", syscall.SIGKILL)
	a.end("ap-south", syscall.SIGKILL)
	a.Until("us-west to know no leader", func() error {
		if g := group(c, "us-west"); g.Leader != nil {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})

	// An inspection of a stopped member counts, and two of three need no recovery.
	code, v := a.inspect(a.Member("us-east").Dir)
	if code != 0 || v["state"] != "sound" || v["digest"] == nil || v["history"] != "0" {
		t.Errorf("inspect of a stopped member: exit %d, %v", code, v)
	}
	_, out, _ := a.command(tidald, "inspect", "-o", "json", a.Member("us-east").Dir)
	inspection := filepath.Join(a.Dir, "us-east.json")
	if err := os.WriteFile(inspection, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, words = a.at("us-west", "recover", "plan", "--out", plan, "--inspection", inspection)
	refused("a plan where a majority is left", code, words, "2 of 3 voters are there")

	if code, out, words = a.at("us-west", "recover", "plan", "--out", plan); code != 0 {
		t.Fatalf("recover plan: exit %d\n%s%s", code, out, words)
	}
	t.Logf("recover plan:\n%s%s", out, words)
	if code, _, words = a.at("us-west", "recover", "apply", plan, "--confirm", "ap-south"); code != 64 {
		t.Errorf("apply with another name: exit %d, want 64: %s", code, words)
	}
	a.start("ap-south") // it is not lost
	a.Until("ap-south to answer", func() error { return a.Get(a.Member("ap-south"), "/healthz", nil) })
	code, _, words = a.at("us-west", "recover", "apply", plan, "--confirm", "us-west")
	if code != 6 {
		t.Errorf("apply while a member that is given up answers: exit %d, want 6: %s", code, words)
	}
	t.Logf("refused:\n%s", words)
	a.end("ap-south", syscall.SIGKILL)
	_ = os.Remove(plan)
	a.Until("us-west to know no leader", func() error {
		if g := group(c, "us-west"); g.Leader != nil {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	if code, out, words = a.at("us-west", "recover", "plan", "--out", plan); code != 0 {
		t.Fatalf("recover plan: exit %d\n%s%s", code, out, words)
	}
	mangled := filepath.Join(a.Dir, "mangled.json")
	raw, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mangled, []byte(strings.Replace(string(raw), `"gives_up"`, `"give_up"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, words = a.at("us-west", "recover", "apply", mangled, "--confirm", "us-west"); code != 64 {
		t.Errorf("apply of what is no plan: exit %d, want 64: %s", code, words)
	}
	if code, out, words = a.at("us-west", "recover", "apply", plan, "--confirm", "us-west"); code != 0 {
		t.Fatalf("recover apply: exit %d\n%s%s", code, out, words)
	}
	t.Logf("recover apply:\n%s", out)
	a.leads("us-west")
	a.only("us-west")
	l.During(func() { l.WaitAcked(100) })
	if code, out, words = a.at("us-west", "recover", "apply", plan, "--confirm", "us-west"); code != 0 || !strings.Contains(out, "before") {
		t.Errorf("apply again: exit %d\n%s%s", code, out, words)
	}
	a.powerLoss()
	a.start("us-west")
	a.leads("us-west")

	// Those that were given up come back together: a majority of what the cluster was.
	a.all()
	a.start(lost...)
	for _, name := range lost {
		a.fenced(name)
	}
	a.stopAll()
	a.start(append(lost, "us-west")...) // and again
	for _, name := range lost {
		a.fenced(name)
	}
	a.only("us-west")
	a.leads("us-west")
	l.During(func() { l.WaitAcked(100) })
	a.audit(l, "us-west")
}

// Everybody loses power while a recovery is carried out: it was done or it was not, and can be planned
// again.
func TestSoak_PowerLossWhileRecovering(t *testing.T) {
	tidald := Binary(t)
	c := Start(t, tidald, Options{})
	l := NewLedger(c, 8)
	a := takeApart(t, c, tidald)
	a.start("us-east", "us-west", "ap-south")
	a.leads("us-east", "us-west", "ap-south")
	l.During(func() { l.WaitAcked(100) })
	l.Check()
	a.powerLoss()
	undone := 0
	for recovered := false; !recovered; undone++ {
		a.start("us-west")
		plan := filepath.Join(a.Dir, fmt.Sprintf("plan-%d.json", undone))
		a.Until("a plan, or the recovery of the round before", func() error {
			var st api.Status
			if err := a.Get(a.Member("us-west"), "/cluster/status", &st); err != nil {
				return err
			}
			if recovered = len(st.Regions) == 1; recovered {
				return nil
			}
			if code, _, words := a.at("us-west", "recover", "plan", "--out", plan); code != 0 {
				return fmt.Errorf("exit %d: %s", code, words)
			}
			return nil
		})
		if recovered {
			break
		}
		applied := make(chan int, 1)
		go func() {
			code, _, _ := a.at("us-west", "recover", "apply", plan, "--confirm", "us-west")
			applied <- code
		}()
		// The file of the votes is the first that a recovery writes: power goes as soon as it has changed, and
		// later and later behind it.
		before := voted(t, a, "us-west")
		for n := 0; n <= undone*undone; {
			if voted(t, a, "us-west") != before {
				n++
			}
			select {
			case <-applied:
				n = undone*undone + 1
			default:
			}
		}
		a.powerLoss()
	}
	t.Logf("power went %d times", undone)
	a.leads("us-west")
	a.only("us-west")
	l.During(func() { l.WaitAcked(100) })
	a.audit(l, "us-west")
}

// voted is the content of a member's votes.
func voted(t *testing.T, a *apart, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(a.Member(name).Dir, "votes"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
