package httpd

import "testing"

func BenchmarkDecodeLine(b *testing.B) {
	for _, bc := range []struct{ name, line string }{
		{"signal", `{"kind":"signal","item":"it000042","signal":"view","user":"u1234"}`},
		{"signal with everything", `{"kind":"signal","item":"it000042","signal":"view","user":"u1234","weight":2.5,"ts":1772366400250,"key":"k-000042"}`},
		{"item", `{"kind":"item","id":"it000042","title":"a title of an item","genre":["a","b"],"meta":{"year":2026,"len":91.5}}`},
		{"hardneg", `{"kind":"hardneg","item":"it000042","user":"u1234","op":"hide"}`},
		{"embedding of 8", `{"kind":"embedding","item":"it000042","vector":[0.125,-1.5,2.25,0.33333334,1e-5,7,8,-9.75]}`},
	} {
		b.Run(bc.name, func(b *testing.B) {
			line := []byte(bc.line)
			d := &decoder{line: true}
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if d.out.Len() > 128<<10 {
					d.out.Reset()
				}
				if err := d.decodeLine(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeSignal(b *testing.B) {
	body := []byte(`{"item":"it000042","signal":"view","user":"u1234","weight":2.5}`)
	b.ReportAllocs()
	for b.Loop() {
		var d decoder
		if _, err := d.decodeRecords(body, (*decoder).signal); err != nil {
			b.Fatal(err)
		}
	}
}
