package command

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
)

// Entry is a payload that was checked whole. It holds parts of the payload.
type Entry struct {
	Kind   Kind
	Stamp  ident.Stamp // of KindWrites
	Writes Writes      // of KindWrites
	Roster []byte      // of KindRoster: for membership.DecodeRoster
	// Features, of KindFeature, are what the log makes use of from here on.
	Features ident.Capabilities
	// Trusted, of KindCheck, is the member whose digest is right, whatever the majority says; 0: none is.
	Trusted ident.MemberID
}

// Writes walks the writes of an entry. It is a value: a copy walks on its own.
type Writes struct {
	left int
	d    decoder
}

// Records walks the records of a write. It is a value: a copy walks on its own.
type Records struct {
	left   int
	kind   RecordKind
	unread bool   // the present record is the next thing in d
	write  []byte // the write's key, 32 bytes; nil: it has none
	key    []byte // the present record's
	d      decoder
}

// Decode checks payload, all of it, and returns what it is. Errors: *UnknownKindError,
// *MalformedError. No payload is KindEmpty.
func Decode(payload []byte) (Entry, error) {
	if len(payload) == 0 {
		return Entry{Kind: KindEmpty}, nil
	}
	e := Entry{Kind: Kind(payload[0])}
	d := decoder{b: payload[1:]}
	version := d.u8()
	switch {
	case d.err != nil:
	case e.Kind == KindWrites && version == writesVersion:
		e.Stamp = ident.Stamp(d.u64())
		e.Writes = Writes{left: d.count(), d: d}
		d.checkWrites(e.Writes.left)
	case e.Kind == KindRoster && version == rosterVersion:
		e.Roster, d.b = d.b, nil
	case e.Kind == KindFeature && version == featureVersion:
		e.Features = ident.Capabilities(d.u64())
	case e.Kind == KindCheck && version == checkVersion:
		e.Trusted = ident.MemberID(d.u64())
	case e.Kind == KindWrites, e.Kind == KindRoster, e.Kind == KindFeature, e.Kind == KindCheck:
		d.err = &UnknownKindError{What: e.Kind.String() + " version", Number: uint64(version)}
	case e.Kind == KindEmpty, e.Kind == KindGenesis:
		d.fail("it never travels")
	default:
		d.err = &UnknownKindError{What: "entry kind", Number: uint64(e.Kind)}
	}
	if err := d.finish(e.Kind); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// StampOf returns the stamp of a payload, checking no more of it; false when it has none.
func StampOf(payload []byte) (ident.Stamp, bool) {
	if len(payload) < writesHeader || Kind(payload[0]) != KindWrites || payload[1] != writesVersion {
		return 0, false
	}
	return ident.Stamp(binary.LittleEndian.Uint64(payload[2:])), true
}

// CheckWrite returns the error that DecodeWrite would, and decodes nothing. What it lets through can
// be joined with other writes and applied.
func CheckWrite(b []byte) error {
	d := decoder{b: b}
	d.checkWrite()
	return d.finish(KindWrites)
}

// DecodeWrite reads what EncodeWrite wrote. The records hold parts of b. Errors: *UnknownKindError,
// *MalformedError.
func DecodeWrite(b []byte) (Write, error) {
	if err := CheckWrite(b); err != nil {
		return Write{}, err
	}
	recs := MakeRecords(b)
	w := Write{Records: make([]Record, 0, recs.Len())}
	if k, ok := recs.WriteKey(); ok {
		w.Key = &k
	}
	for recs.Next() {
		r := recs.Record()
		if k, ok := recs.Key(); ok {
			r = Keyed{k, r}
		}
		w.Records = append(w.Records, r)
	}
	return w, nil
}

// Len returns how many writes are left.
func (w *Writes) Len() int { return w.left }

// Next returns the records of the next write, or false after the last.
func (w *Writes) Next() (Records, bool) {
	if w.left == 0 {
		return Records{}, false
	}
	w.left--
	return MakeRecords(w.d.bytes()), true
}

// MakeRecords walks a write that was checked.
func MakeRecords(write []byte) Records {
	d := decoder{b: write}
	r := Records{}
	if d.uvarint()&writeKeyed != 0 {
		r.write = d.take(keyBytes)
	}
	r.left = d.count()
	r.d = d
	return r
}

// Len returns how many records are left.
func (r *Records) Len() int { return r.left }

// WriteKey returns the idempotency key of the whole write, if it has one.
func (r *Records) WriteKey() (Key, bool) { return keyOf(r.write) }

// Next steps to the next record, which is then read once, by the method that Kind names or by Record,
// or left. It reports false after the last.
func (r *Records) Next() bool {
	if r.unread {
		r.d.skip(r.kind)
	}
	if r.unread = r.left > 0; !r.unread {
		return false
	}
	r.left--
	kind := r.d.u8()
	r.kind, r.key = RecordKind(kind&^recordKeyed), nil
	if kind&recordKeyed != 0 {
		r.key = r.d.take(keyBytes)
	}
	return true
}

// Kind returns the kind of the present record.
func (r *Records) Kind() RecordKind { return r.kind }

// Key returns the idempotency key of the present record, if it has one of its own.
func (r *Records) Key() (Key, bool) { return keyOf(r.key) }

func keyOf(b []byte) (k Key, ok bool) {
	if b == nil {
		return Key{}, false
	}
	return Key{Hash: [16]byte(b[:16]), Body: [16]byte(b[16:])}, true
}

// Signal returns the present record. Its strings are parts of the payload: who keeps one longer than
// the entry clones it. So it is with the other records.
func (r *Records) Signal() Signal {
	r.unread = false
	return r.d.signal()
}

// Item returns the present record.
func (r *Records) Item() Item {
	r.unread = false
	return r.d.item()
}

// Embedding returns the present record.
func (r *Records) Embedding() Embedding {
	r.unread = false
	return r.d.embedding()
}

// HardNeg returns the present record.
func (r *Records) HardNeg() HardNeg {
	r.unread = false
	return r.d.hardNeg()
}

// Delete returns the present record.
func (r *Records) Delete() Delete {
	r.unread = false
	return r.d.delete()
}

// Collection returns the present record.
func (r *Records) Collection() Collection {
	r.unread = false
	return r.d.schema()
}

// Record returns the present record, whatever its kind is.
func (r *Records) Record() Record {
	r.unread = false
	switch r.kind {
	case RecordSignal:
		return r.d.signal()
	case RecordItem:
		return r.d.item()
	case RecordEmbedding:
		return r.d.embedding()
	case RecordHardNeg:
		return r.d.hardNeg()
	case RecordDelete:
		return r.d.delete()
	case RecordOutbox:
		return r.d.outbox()
	case RecordOutboxForget:
		return r.d.outboxForget()
	default:
		return r.d.schema()
	}
}

// Facts is what the gateway must know of a write beside its size.
type Facts struct {
	Latest int64 // the latest time that a signal gives, Unix ms; 0: none gives one
	Record int   // which record that is
	Keyed  bool  // the write, or a record of it, has an idempotency key
}

// Inspect returns the Facts of a write that was checked.
func Inspect(write []byte) Facts {
	r := MakeRecords(write)
	f := Facts{Keyed: r.write != nil}
	for n := 0; r.Next(); n++ {
		f.Keyed = f.Keyed || r.key != nil
		if r.kind != RecordSignal {
			continue
		}
		if s := r.Signal(); s.At != 0 && (f.Latest == 0 || s.At > f.Latest) {
			f.Latest, f.Record = s.At, n
		}
	}
	return f
}

// decoder reads fields one after the other. The first error sticks: later reads give zeros, and
// finish reports it. It allocates nothing unless there is an error.
type decoder struct {
	b   []byte
	err error
	// only says which kinds of records may be met where not all may; nil: all.
	only func(RecordKind) bool
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.b = nil
}

func (d *decoder) checkWrites(n int) {
	for i := 0; i < n && d.err == nil; i++ {
		w := decoder{b: d.bytes()}
		if d.err != nil {
			return
		}
		w.checkWrite()
		if len(w.b) > 0 {
			w.fail("%d bytes follow the last record", len(w.b))
		}
		if w.err != nil {
			d.err, d.b = fmt.Errorf("write %d: %w", i, w.err), nil
		}
	}
}

func (d *decoder) checkWrite() {
	switch flags := d.uvarint(); {
	case d.err != nil:
	case flags&^writeKeyed != 0:
		d.err = &UnknownKindError{What: "write flags", Number: flags}
		return
	case flags == writeKeyed:
		d.take(keyBytes)
	}
	n := d.count()
	for i := 0; i < n && d.err == nil; i++ {
		kind := d.u8()
		if kind&recordKeyed != 0 {
			d.take(keyBytes)
		}
		if d.err == nil {
			d.skip(RecordKind(kind &^ recordKeyed))
		}
	}
}

// skip reads a record of a kind, and checks its shape.
func (d *decoder) skip(kind RecordKind) {
	if d.only != nil && !d.only(kind) {
		d.fail("a record %s where none may be", kind)
		return
	}
	switch kind {
	case RecordSignal:
		d.signal()
	case RecordItem:
		d.item()
	case RecordEmbedding:
		d.embedding()
	case RecordHardNeg:
		d.hardNeg()
	case RecordDelete:
		d.delete()
	case RecordCollection:
		d.schema()
	case RecordOutbox:
		d.checkOutbox()
	case RecordOutboxForget:
		d.outboxForget()
	default:
		d.err = &UnknownKindError{What: "record kind", Number: uint64(kind)}
	}
}

func (d *decoder) signal() Signal {
	return Signal{
		Collection: d.collection(),
		Item:       d.text(),
		Type:       d.text(),
		User:       d.text(),
		Milli:      d.uvarint(),
		At:         d.svarint(),
	}
}

func (d *decoder) item() Item {
	return Item{Collection: d.collection(), ID: d.text(), Attrs: d.bytes()}
}

func (d *decoder) embedding() Embedding {
	return Embedding{Collection: d.collection(), Item: d.text(), Vector: d.bytes()}
}

func (d *decoder) hardNeg() HardNeg {
	h := HardNeg{Collection: d.collection(), Item: d.text(), User: d.text()}
	switch op := d.u8(); op {
	case 0:
	case 1:
		h.Hide = true
	default:
		d.fail("op %d of a hard negative", op)
	}
	return h
}

func (d *decoder) delete() Delete {
	return Delete{Collection: d.collection(), ID: d.text()}
}

func (d *decoder) schema() Collection {
	c := Collection{Name: d.collection()}
	if ms := d.uvarint(); ms <= uint64(entity.MaxHalfLife.Milliseconds()) {
		c.Schema.HalfLife = time.Duration(ms) * time.Millisecond
	} else {
		d.fail("half-life of %d ms", ms)
	}
	if n := d.uvarint(); n <= entity.MaxDimension {
		c.Schema.Dimension = int(n)
	} else {
		d.fail("dimension %d, limit %d", n, entity.MaxDimension)
	}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		c.Schema.Types = append(c.Schema.Types, entity.SignalType{Milli: d.uvarint(), Name: d.text()})
	}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		c.Schema.Attributes = append(c.Schema.Attributes, entity.Attribute{Type: entity.AttributeType(d.u8()), Name: d.text()})
	}
	return c
}

func (d *decoder) collection() string {
	switch name := d.text(); name {
	case "":
		return DefaultCollection
	case DefaultCollection:
		d.fail("the default collection is written out")
		return ""
	default:
		return name
	}
}

// text returns a string that shares the bytes of the payload: nobody changes those of an entry.
func (d *decoder) text() string {
	b := d.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// bytes reads a length and returns that many bytes.
func (d *decoder) bytes() []byte { return d.take(d.uvarint()) }

// keyBytes is the size of a key.
const keyBytes = 32

// take returns the next n bytes, capped so that an append to them copies.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("cut short: want %d more bytes, have %d", n, len(d.b))
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// count reads how many things of at least a byte each follow.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail("cut short: %d things in %d bytes", n, len(d.b))
		return 0
	}
	return int(n)
}

func (d *decoder) u8() uint8 {
	if len(d.b) < 1 {
		d.fail("cut short: want 1 more byte, have 0")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) u64() uint64 {
	if len(d.b) < 8 {
		d.fail("cut short: want 8 more bytes, have %d", len(d.b))
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

// uvarint reads a number in its shortest form; a longer one is refused, so that a payload has one
// encoding.
func (d *decoder) uvarint() uint64 {
	if len(d.b) > 0 && d.b[0] < 0x80 { // most are lengths of one byte
		v := d.b[0]
		d.b = d.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("bad varint with %d bytes left", len(d.b))
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) svarint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// finish reports the first error, or bytes left over.
func (d *decoder) finish(kind Kind) error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes follow its end", len(d.b))
	}
	if unknown, ok := errors.AsType[*UnknownKindError](d.err); ok {
		return unknown
	}
	if d.err != nil {
		return &MalformedError{Kind: kind, Detail: d.err.Error()}
	}
	return nil
}
