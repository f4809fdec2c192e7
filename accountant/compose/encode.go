package compose

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// LawVersion is the first byte of an encoded law.
const LawVersion = 1

// A number is encoded as three bytes: an exponent e and a mantissa m of 16 bits, the number being m·2^−(15+e). The
// highest bit of m is set, except for 0, which is three zero bytes. So every number has one form, and decodes
// exactly.
const (
	numberBytes = 3
	headerBytes = 1 + 3 + numberBytes + numberBytes + 2 // Version, copies, step, infinity, count.
	lowestExp   = 255
)

// roundUp returns the smallest encodable number ≥ x, for x below 2. It returns NaN for NaN.
func roundUp(x float64) float64 {
	if x <= 0 {
		return 0
	}
	frac, exp := math.Frexp(x) // In [1/2, 1).
	if exp < 1-lowestExp {
		return math.Ldexp(1, -lowestExp)
	}
	return math.Ldexp(math.Ceil(math.Ldexp(frac, 16)), exp-16)
}

func appendNumber(out []byte, x float64) []byte {
	if x == 0 {
		return append(out, 0, 0, 0)
	}
	if !(x > 0 && x < 2) {
		panic("compose: a law with a number out of range") // newLaw and DecodeLaw exclude such numbers.
	}
	frac, exp := math.Frexp(x)
	m := uint16(math.Ldexp(frac, 16))
	return append(out, byte(1-exp), byte(m>>8), byte(m))
}

// number decodes a number that appendNumber encoded. ok is false if the bytes are not the form of any number.
func number(in []byte) (x float64, ok bool) {
	m := uint16(in[1])<<8 | uint16(in[2])
	if m>>15 == 0 {
		return 0, m == 0 && in[0] == 0
	}
	return math.Ldexp(float64(m), -15-int(in[0])), true
}

// Encode returns the law as bytes: its version, copies (three bytes, big-endian), step, m_∞, G (two bytes) and m_1 to
// m_G, three bytes each. A law has exactly one encoding.
func (l *Law) Encode() []byte {
	out := []byte{LawVersion, byte(l.copies >> 16), byte(l.copies >> 8), byte(l.copies)}
	out = appendNumber(appendNumber(out, l.step), l.infinity)
	out = append(out, byte(len(l.masses)>>8), byte(len(l.masses)))
	for _, m := range l.masses {
		out = appendNumber(out, m)
	}
	return out
}

// mostMass is the largest total of a law's masses. A law that was rounded up may have slightly more than 1, which
// raises its divergences. DecodeLaw rejects laws with more.
const mostMass = 1 + 1e-3

// mostLoss is the largest finite loss of a law: the largest ε of a claim. It keeps e^loss far from overflow.
const mostLoss = 100

// excess returns ln of the product of all copies' total masses. It is 0 if a copy's masses sum to 1 or less, the
// remainder having loss 0. A result above 1 would raise every δ by more than a factor e.
func (l *Law) excess() float64 {
	total := l.infinity
	for i, m := range l.masses {
		total += m * (1 + math.Exp(-float64(i+1)*l.step))
	}
	return float64(l.copies) * math.Log(max(1, total))
}

// DecodeLaw decodes a law. Bytes that are not the one encoding of a law are an [invalid.FieldError] about "law".
func DecodeLaw(in []byte) (*Law, error) {
	switch {
	case len(in) < headerBytes:
		return nil, badLaw(strconv.Itoa(len(in))+" bytes", "at least "+strconv.Itoa(headerBytes))
	case in[0] != LawVersion:
		return nil, badLaw("version "+strconv.Itoa(int(in[0])), "version "+strconv.Itoa(LawVersion))
	}
	l := &Law{copies: uint64(in[1])<<16 | uint64(in[2])<<8 | uint64(in[3])}
	if l.copies < 1 || l.copies > maxCopies {
		return nil, badLaw(strconv.FormatUint(l.copies, 10)+" copies", "1 to "+strconv.Itoa(maxCopies))
	}
	var okStep, okInfinity bool
	l.step, okStep = number(in[4:])
	l.infinity, okInfinity = number(in[4+numberBytes:])
	points := int(in[headerBytes-2])<<8 | int(in[headerBytes-1])
	if !okStep || !okInfinity || l.step == 0 || l.infinity > 1 {
		return nil, badLaw("a number of another form", "a step above 0, and a probability")
	}
	if want := headerBytes + numberBytes*points; points > lawMaxPoints || len(in) != want {
		return nil, badLaw(strconv.Itoa(len(in))+" bytes for "+strconv.Itoa(points)+" masses",
			"at most "+strconv.Itoa(lawMaxPoints)+" masses of three bytes each")
	}
	if !(l.step*float64(points) <= mostLoss) {
		return nil, badLaw("a loss of "+decimal.Format(l.step*float64(points), 6), "at most "+strconv.Itoa(mostLoss))
	}
	return l, l.decodeMasses(in[headerBytes:])
}

func (l *Law) decodeMasses(in []byte) error {
	total := l.infinity
	for i := 0; i < len(in); i += numberBytes {
		m, ok := number(in[i:])
		if !ok {
			return badLaw("a mass of another form", "an exponent and 16 bits, the highest of which is set")
		}
		l.masses = append(l.masses, m)
		total += m * (1 + math.Exp(-float64(len(l.masses))*l.step))
	}
	if last := len(l.masses) - 1; last >= 0 && l.masses[last] == 0 {
		return badLaw("a last mass of 0", "one above 0")
	}
	if !(total <= mostMass) || !(l.excess() <= 1) {
		return badLaw("masses that add up to "+decimal.Format(total, 6)+", "+
			strconv.FormatUint(l.copies, 10)+" times", "at most 1")
	}
	return nil
}

func badLaw(value, want string) error { return invalid.Field("law", value, want) }
