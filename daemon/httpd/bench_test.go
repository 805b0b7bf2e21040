package httpd

import "testing"

func BenchmarkDecodeSignal(b *testing.B) {
	body := []byte(`{"item":"it000042","signal":"view","user":"u1234","weight":2.5}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeSignal(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeItem(b *testing.B) {
	body := []byte(`{"id":"it000042","title":"a title of an item","genre":["a","b"],"meta":{"year":2026,"len":91.5}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := decodeItems(body); err != nil {
			b.Fatal(err)
		}
	}
}
