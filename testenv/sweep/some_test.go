//go:build !soak

package sweep

// stride is how many images, or faults, a quick run passes over for one that it takes. It has no
// divisor in common with the number of crash classes, so that every class is met.
const stride = 29
