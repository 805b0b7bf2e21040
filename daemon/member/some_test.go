//go:build !soak

package member

// stride: a quick run takes one of so many moments at which the power goes off. It has no divisor in common
// with the number of images of a moment.
const stride = 23
