package sweep

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidaldb/tidal/testenv/simfs"
)

// script works on an empty disk until it has ended or the power is off. What it returns makes a
// memory of what it was told, one for each disk that comes of it.
type script func(t *testing.T, fs *simfs.FS) (remember func() boot)

// boot starts on what fs holds and reports an error if anything that its memory knows of is not
// there, or if what is there makes no sense. Then it works on a little, remembers what it is told, and
// stops. It can be repeated on the same disk, and stands the power going off under it: that is an
// error like any other.
type boot func(fs *simfs.FS) error

// image says how a disk came about, for messages and for running one again.
type image struct {
	cut   int // the change at which the power went off
	class simfs.Crash
	seed  uint64
}

func (i image) String() string {
	return fmt.Sprintf("power off at change %d, %s, seed %d", i.cut, i.class, i.seed)
}

// chance reports whether there is more than one disk of a class.
func chance(class simfs.Crash) bool {
	return class == simfs.Prefix || class == simfs.Subset || class == simfs.Torn || class == simfs.Garbage
}

// crashEverywhere runs s once for every change it makes to its disk, with the power going off there,
// and boots every image of that disk: twice, and a copy of it with the power going off in the first
// boot too. Of the classes where chance decides it draws as many images as draws says; of all images
// it takes every nth.
func crashEverywhere(t *testing.T, what string, nth int, draws uint64, s script) {
	t.Parallel()
	whole := simfs.New()
	if err := s(t, whole)()(whole.Crash(simfs.Strict, 0)); err != nil {
		t.Fatalf("%s: power off at the end: %v", what, err)
	}
	_, changes := whole.Calls()
	sound, taken, turn := 0, 0, 0
	for cut := 1; cut <= changes; cut++ {
		var images []image
		for _, class := range simfs.Crashes() {
			for seed := range draws {
				if seed > 0 && !chance(class) {
					break
				}
				if turn++; turn%nth == 0 {
					images = append(images, image{cut, class, seed})
				}
			}
		}
		if len(images) == 0 {
			continue
		}
		fs := simfs.New()
		fs.CutPowerAt(cut)
		remember := s(t, fs)
		if !fs.Off() {
			break // work beside the script made less calls this time
		}
		for _, i := range images {
			taken++
			if err := bootTwice(fs, i, remember); err != nil {
				t.Errorf("%s: %s: %v", what, i, err)
				continue
			}
			sound++
		}
	}
	report(t, "%s: %d of %d crash images sound, of %d places to crash", what, sound, taken, changes)
}

// bootTwice boots what a crash has left, boots it again, and boots what a crash of the first boot
// has left.
func bootTwice(fs *simfs.FS, i image, remember func() boot) error {
	disk, boot := fs.Crash(i.class, i.seed), remember()
	if err := boot(disk); err != nil {
		return fmt.Errorf("first boot: %w", err)
	}
	_, changes := disk.Calls()
	if err := boot(disk); err != nil {
		return fmt.Errorf("second boot: %w", err)
	}
	rng := rand.New(rand.NewPCG(uint64(i.cut), i.seed))
	disk, boot = fs.Crash(i.class, i.seed), remember()
	disk.CutPowerAt(1 + rng.IntN(max(changes, 1)))
	if err := boot(disk); err != nil && !disk.Off() {
		return fmt.Errorf("first boot, cut short: %w", err)
	}
	class := simfs.Crashes()[i.cut%len(simfs.Crashes())]
	if err := boot(disk.Crash(class, i.seed)); err != nil {
		return fmt.Errorf("boot after a crash of the boot (%s): %w", class, err)
	}
	return nil
}

// report prints one line, also where go test shows no logs.
func report(t *testing.T, format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	t.Log(line)
	fmt.Println("sweep:", line)
}
