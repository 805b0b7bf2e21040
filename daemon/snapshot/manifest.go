package snapshot

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
)

// StateFormat is the version of what the tables of a group's state hold. It is raised only by a
// feature activation.
const StateFormat = 1

// Bounds of a manifest. They are far above what a group can have, and below what hurts.
const (
	maxManifestBytes = 16 << 20
	maxFiles         = 100_000
	maxFileBytes     = 1 << 40
	maxTotalBytes    = 1 << 44
	maxNameBytes     = 128
	maxRosterBytes   = 4 << 20
	maxPositionBytes = 1 << 20
	sumBytes         = 32
	manifestFixed    = 16 + 4 + 8 + 4 + 4
	minFileRecord    = 1 + 1 + 8 + sumBytes
)

// Manifest says what an artifact holds.
type Manifest struct {
	Cluster ident.ClusterID
	Group   ident.GroupID
	Source  ident.MemberID // who staged it

	// PebbleFormat and StateFormat are the versions of the files and of what is in them. A consumer
	// refuses newer ones before it fetches.
	PebbleFormat, StateFormat uint32

	// Position is the last entry that is in the state, and raft's whole configuration after it.
	Position state.Position
	// Roster is the record of the roster in force; nil where the group has none.
	Roster []byte

	Files []File // by name, ascending

	// Features are what the log has made use of up to Position, beyond the first release. A consumer that
	// lacks one refuses before it fetches.
	Features ident.Capabilities
}

// File is one file of an artifact.
type File struct {
	Name  string
	Bytes int64
	Sum   [sumBytes]byte // BLAKE3
}

// ID names an artifact by its manifest: the first half of its BLAKE3. Equal ids mean equal files.
type ID [16]byte

// String returns lower-case hex.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// idOf returns the id of the artifact with this encoded manifest.
func idOf(encoded []byte) ID {
	sum := blake3.Sum256(encoded)
	return ID(sum[:16])
}

// Bytes returns the size of all files.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}

// manifestFormat has a version for what comes. The digest of the state is part of the position.
func manifestFormat() durable.Format { return durable.Format{Magic: "tidalART", Version: 1} }

// Encode returns the manifest: durable.Format around
//
//	0         16      20       28              32             36
//	+---------+-------+--------+---------------+--------------+
//	| cluster | group | source | pebble format | state format |
//	| 16      | u32   | u64    | u32           | u32          |
//	+---------+-------+--------+---------------+--------------+
//	| position: bytes u32, then state.EncodePosition          |
//	| roster: bytes u32, then the record; 0 bytes: none       |
//	| files: count u32, then count of                         |
//	|   name: bytes u8, then the bytes | size u64 | BLAKE3 32 |
//	+---------------------------------------------------------+
//	| features u64; absent where there is none                |
//	+---------------------------------------------------------+
//
// Little-endian; files ascend by name. What comes to be written after the features belongs to a feature.
func (m *Manifest) Encode() []byte {
	position := state.EncodePosition(m.Position)
	b := make([]byte, 0, manifestFixed+len(position)+len(m.Roster)+12+64*len(m.Files))
	b = append(b, m.Cluster[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Group))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Source))
	b = binary.LittleEndian.AppendUint32(b, m.PebbleFormat)
	b = binary.LittleEndian.AppendUint32(b, m.StateFormat)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(position)))
	b = append(b, position...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Roster)))
	b = append(b, m.Roster...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Files)))
	for _, f := range m.Files {
		b = append(b, byte(len(f.Name)))
		b = append(b, f.Name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.Bytes))
		b = append(b, f.Sum[:]...)
	}
	if m.Features != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(m.Features))
	}
	return manifestFormat().Encode(b)
}

// DecodeManifest reads what Encode wrote, and refuses anything that could do harm: it comes from the
// network. The errors are *ManifestError, *FormatError and *durable.VersionError.
func DecodeManifest(encoded []byte) (*Manifest, error) {
	if len(encoded) > maxManifestBytes {
		return nil, &ManifestError{fmt.Sprintf("it has %d bytes, at most %d are taken", len(encoded), maxManifestBytes)}
	}
	b, err := manifestFormat().Decode("the manifest", encoded)
	if _, newer := err.(*durable.VersionError); newer {
		return nil, err
	}
	if err != nil {
		return nil, &ManifestError{err.Error()}
	}
	d := decoder{b: b}
	m := &Manifest{
		Cluster:      ident.ClusterID(d.take("cluster", 16)),
		Group:        ident.GroupID(d.u32("group")),
		Source:       ident.MemberID(d.u64("source")),
		PebbleFormat: d.u32("pebble format"),
		StateFormat:  d.u32("state format"),
	}
	position := d.take("position", d.count("position", maxPositionBytes, 1))
	if n := d.count("roster", maxRosterBytes, 1); n > 0 {
		m.Roster = append(m.Roster, d.take("roster", n)...)
	}
	m.Files = make([]File, d.count("files", maxFiles, minFileRecord))
	for i := range m.Files {
		m.Files[i] = File{
			Name:  string(d.take("name", int(d.take("name", 1)[0]))),
			Bytes: int64(d.u64("size")),
			Sum:   [sumBytes]byte(d.take("sum", sumBytes)),
		}
	}
	if d.err == "" && len(d.b) > 0 {
		if m.Features = ident.Capabilities(d.u64("features")); d.err == "" && m.Features == 0 {
			d.err = "it says that it has no features"
		}
	}
	if err := m.supports(); d.err == "" && err != nil {
		return nil, err // before what nobody here can read
	}
	if d.err == "" && len(d.b) > 0 {
		d.err = fmt.Sprintf("%d bytes after its end", len(d.b))
	}
	if d.err != "" {
		return nil, &ManifestError{d.err}
	}
	if m.Position, err = state.DecodePosition(position); err != nil {
		return nil, &ManifestError{err.Error()}
	}
	if detail := m.flaw(); detail != "" {
		return nil, &ManifestError{detail}
	}
	return m, nil
}

// flaw says what is wrong with a manifest that could be read; empty: nothing.
func (m *Manifest) flaw() string {
	switch {
	case m.Source == 0 || m.Cluster.IsZero():
		return fmt.Sprintf("it is of member %s in cluster %s", m.Source, m.Cluster)
	case m.Position.Applied.Index == 0 || m.Position.Applied.Term == 0:
		return fmt.Sprintf("its position is %s", m.Position.Applied)
	case len(m.Position.Conf.GetVoters()) == 0:
		return "its configuration has no voter"
	case len(m.Files) == 0:
		return "it has no file"
	}
	if len(m.Roster) > 0 {
		if _, err := membership.DecodeRoster(m.Roster); err != nil {
			return err.Error()
		}
	}
	var total int64
	folded := make(map[string]bool, len(m.Files))
	for i, f := range m.Files {
		if !isStateFile(f.Name) {
			return fmt.Sprintf("file %q is no file of a state", f.Name)
		}
		if i > 0 && f.Name <= m.Files[i-1].Name {
			return fmt.Sprintf("file %q follows %q", f.Name, m.Files[i-1].Name)
		}
		// On a file system that does not tell them apart one would replace the other.
		if twin := strings.ToLower(f.Name); folded[twin] {
			return fmt.Sprintf("file %q differs from another one in case only", f.Name)
		} else {
			folded[twin] = true
		}
		if f.Bytes < 0 || f.Bytes > maxFileBytes {
			return fmt.Sprintf("file %q has %d bytes, at most %d are taken", f.Name, uint64(f.Bytes), int64(maxFileBytes))
		}
		if total += f.Bytes; total > maxTotalBytes {
			return fmt.Sprintf("its files have more than %d bytes", int64(maxTotalBytes))
		}
	}
	return ""
}

// isStateFile reports whether name is one that Pebble gives to a file of a checkpoint. Nothing else
// is ever staged or taken: no path, no link, and nothing that belongs to a member.
func isStateFile(name string) bool {
	if len(name) > maxNameBytes || strings.ContainsFunc(name, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '.'
	}) {
		return false
	}
	digits := func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
	}
	if number, ok := strings.CutSuffix(name, ".sst"); ok {
		return digits(number)
	}
	if number, ok := strings.CutSuffix(name, ".blob"); ok {
		return digits(number)
	}
	if number, ok := strings.CutPrefix(name, "MANIFEST-"); ok {
		return digits(number)
	}
	if number, ok := strings.CutPrefix(name, "OPTIONS-"); ok {
		return digits(number)
	}
	if rest, ok := strings.CutPrefix(name, "marker.format-version."); ok {
		iteration, version, ok := strings.Cut(rest, ".")
		return ok && digits(iteration) && digits(version)
	}
	if rest, ok := strings.CutPrefix(name, "marker.manifest."); ok {
		iteration, manifest, ok := strings.Cut(rest, ".MANIFEST-")
		return ok && digits(iteration) && digits(manifest)
	}
	return false
}

// supports reports why this binary cannot use m; nil: it can.
func (m *Manifest) supports() error {
	e := &FormatError{Pebble: m.PebbleFormat, State: m.StateFormat, Missing: m.Features &^ ident.Supported}
	if e.Pebble > state.Format || e.State > StateFormat || e.Missing != 0 {
		return e
	}
	return nil
}

// decoder cuts a manifest up. The first thing that is wrong stays in err; what is read after it is
// zero.
type decoder struct {
	b   []byte
	err string
}

// take returns the next n bytes.
func (d *decoder) take(what string, n int) []byte {
	if d.err == "" && n > len(d.b) {
		d.err = what + " is cut off"
	}
	if d.err != "" {
		return make([]byte, min(n, sumBytes)) // callers index a few bytes
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

func (d *decoder) u32(what string) uint32 { return binary.LittleEndian.Uint32(d.take(what, 4)) }
func (d *decoder) u64(what string) uint64 { return binary.LittleEndian.Uint64(d.take(what, 8)) }

// count returns a number of things of at least size bytes each, which must be there.
func (d *decoder) count(what string, most, size int) int {
	n := d.u32(what)
	if d.err == "" && (int64(n) > int64(most) || int64(n)*int64(size) > int64(len(d.b))) {
		d.err = fmt.Sprintf("%s: %d, at most %d, in %d bytes", what, n, most, len(d.b))
	}
	if d.err != "" {
		return 0
	}
	return int(n)
}
