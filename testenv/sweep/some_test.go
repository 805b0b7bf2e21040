//go:build !soak

package sweep

// stride: a quick run takes one of so many images and faults where each is costly. It has no divisor in
// common with the number of images of a call, so that every class of crash is met.
const stride = 29
