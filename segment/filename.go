package segment

import (
	"fmt"
	"strings"
)

// A segment's file, locally and in the deep store, is called
//
//	<name>-<first 16 hex digits of the digest>.parquet
//
// with its sidecar beside it under the same base name. Naming the content means
// that two builds of one segment lie side by side and a late write can never
// replace other bytes. Nothing that is not sealed is called .parquet.
const (
	fileSuffix    = ".parquet"
	sidecarSuffix = ".pieces"
	// shortDigits is how many hex digits of the digest a file name carries.
	shortDigits = 16
)

// FileName is the name of the file of the segment called name whose content has
// digest d. Name must be one that ParseName accepts.
func FileName(name string, d Digest) string { return name + "-" + d.Short() + fileSuffix }

// SidecarName is the name of the sidecar beside FileName(name, d).
func SidecarName(name string, d Digest) string { return name + "-" + d.Short() + sidecarSuffix }

// ParseFileName splits what FileName wrote into the segment's name and the first
// 16 hex digits of the digest (Digest.Short).
func ParseFileName(file string) (name Name, short string, err error) {
	return parseFileName(file, fileSuffix)
}

// ParseSidecarName does the same for what SidecarName wrote.
func ParseSidecarName(file string) (name Name, short string, err error) {
	return parseFileName(file, sidecarSuffix)
}

func parseFileName(file, suffix string) (name Name, short string, err error) {
	base, ok := strings.CutSuffix(file, suffix)
	if !ok {
		return Name{}, "", fmt.Errorf("segment: file %q does not end in %s", abridge(file), suffix)
	}
	// The last dash: a table's name may have others.
	dash := strings.LastIndexByte(base, '-')
	if dash < 0 || !isShortDigest(base[dash+1:]) {
		return Name{}, "", fmt.Errorf("segment: file %q: want -<%d lower-case hex digits>%s at its end", abridge(file), shortDigits, suffix)
	}
	if name, err = ParseName(base[:dash]); err != nil {
		return Name{}, "", err
	}
	return name, base[dash+1:], nil
}

func isShortDigest(s string) bool {
	return len(s) == shortDigits && strings.Trim(s, "0123456789abcdef") == ""
}
