package segment

import (
	"path"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var drawName = rapid.Custom(func(t *rapid.T) Name {
	table := rapid.StringMatching(`[A-Za-z0-9](([A-Za-z0-9.-]|_[A-Za-z0-9.-]){0,60}[A-Za-z0-9])?`).Draw(t, "table")
	return NewName(
		table,
		rapid.Int32Min(0).Draw(t, "partition"),
		rapid.Int64Min(0).Draw(t, "seq"),
		time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "created"), 0),
	)
})

var drawDigest = rapid.Custom(func(t *rapid.T) (d Digest) {
	copy(d[:], rapid.SliceOfN(rapid.Byte(), len(d), len(d)).Draw(t, "digest"))
	return d
})

func TestNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawName.Draw(t, "name")
		got, err := ParseName(n.String())
		if err != nil || got != n {
			t.Fatalf("%s came back as %+v, %v", n, got, err)
		}
		var viaText Name
		text, err := n.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := viaText.UnmarshalText(text); err != nil || viaText != n {
			t.Fatalf("%s came back as %+v, %v", text, viaText, err)
		}
	})
}

func TestFileNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, d := drawName.Draw(t, "name"), drawDigest.Draw(t, "digest")
		for _, c := range []struct {
			file  string
			parse func(string) (Name, string, error)
		}{{FileName(n.String(), d), ParseFileName}, {SidecarName(n.String(), d), ParseSidecarName}} {
			got, short, err := c.parse(c.file)
			if err != nil || got != n || short != d.Short() {
				t.Fatalf("%s came back as %+v, %s, %v", c.file, got, short, err)
			}
		}
	})
}

func TestLongestNameFitsAFileSystem(t *testing.T) {
	n := Name{strings.Repeat("t", 128), 1<<31 - 1, 1<<63 - 1, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	// The longest file beside it is a download's journal.
	if file := FileName(n.String(), Digest{}) + downloadSuffix + journalSuffix; len(file) > 255 {
		t.Fatalf("%d bytes: %s", len(file), file)
	}
}

func TestNamesSortByNumber(t *testing.T) {
	at := time.Unix(0, 0)
	sorted := []Name{
		NewName("a", 0, 9, at), NewName("a", 0, 10, at), NewName("a", 0, 10, at.Add(time.Hour)),
		NewName("a", 2, 0, at), NewName("a", 10, 0, at), NewName("b", 0, 0, at),
	}
	for i := range sorted {
		for j := range sorted {
			if got, want := sorted[i].Compare(sorted[j]), min(1, max(-1, i-j)); got != want {
				t.Errorf("%s against %s is %d, want %d", sorted[i], sorted[j], got, want)
			}
		}
	}
}

var badNames = []string{
	"", "flights", "..", "../../etc/passwd", "/", "__", "______",
	"flights__0__0", "flights__0__0__20261129T160000Z__x",
	"../x__0__0__20261129T160000Z", "..__0__0__20261129T160000Z", "a/b__0__0__20261129T160000Z", `a\b__0__0__20261129T160000Z`,
	"__0__0__20261129T160000Z", ".a__0__0__20261129T160000Z", "a.__0__0__20261129T160000Z", "a___0__0__20261129T160000Z",
	"a\x00b__0__0__20261129T160000Z", "a\n__0__0__20261129T160000Z", "é__0__0__20261129T160000Z", strings.Repeat("a", 129) + "__0__0__20261129T160000Z",
	"a__-1__0__20261129T160000Z", "a__+1__0__20261129T160000Z", "a__01__0__20261129T160000Z", "a__2147483648__0__20261129T160000Z", "a__0x1__0__20261129T160000Z",
	"a__0__-1__20261129T160000Z", "a__0__00__20261129T160000Z", "a__0__9223372036854775808__20261129T160000Z", "a__0____20261129T160000Z",
	"a__0__0__20261329T160000Z", "a__0__0__20261129T250000Z", "a__0__0__20261129T160000", "a__0__0__20261129T160000z", "a__0__0__20261129T160000.5Z",
	"a__0__0__20261129T160000Z ", " a__0__0__20261129T160000Z", "a__0__0__20261129T160000Z/..", "a__0__0__20261129T160000Z\x00",
}

func TestBadNamesAreRefused(t *testing.T) {
	for _, s := range badNames {
		if n, err := ParseName(s); err == nil {
			t.Errorf("%q was accepted as %+v", s, n)
		}
	}
}

func TestBadFileNamesAreRefused(t *testing.T) {
	const name = "a__0__0__20261129T160000Z"
	bad := []string{
		name, name + ".parquet", name + "-.parquet", name + "-0123456789abcde.parquet", name + "-0123456789abcdef0.parquet",
		name + "-0123456789ABCDEF.parquet", name + "-0123456789abcdef", name + "-0123456789abcdef.pieces", name + "-0123456789abcdef.parquet.part",
		"../" + name + "-0123456789abcdef.parquet", ".parquet", "-0123456789abcdef.parquet", name + "-0123456789abcde/.parquet",
	}
	for _, s := range badNames {
		bad = append(bad, s+"-0123456789abcdef.parquet")
	}
	for _, s := range bad {
		if n, short, err := ParseFileName(s); err == nil {
			t.Errorf("%q was accepted as %+v, %s", s, n, short)
		}
	}
}

func TestTableGrammar(t *testing.T) {
	for _, s := range []string{"a", "0", "flights", "a_b", "a.b-c_d", "A9", strings.Repeat("x", 128)} {
		if err := ValidTable(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", "_", "a_", "-a", "a__b", "a b", "a/b", "..", "a\n", strings.Repeat("x", 129), strings.Repeat("y", 1<<20)} {
		err := ValidTable(s)
		if err == nil {
			t.Errorf("%q was accepted", s)
		} else if len(err.Error()) > 2000 {
			t.Errorf("the refusal of %d bytes takes %d", len(s), len(err.Error()))
		}
	}
}

// What a parser accepts has one spelling and stays below its directory.
func FuzzParseName(f *testing.F) {
	for _, s := range append(badNames, "flights__12__345__20261129T160000Z", "a-b.c_d__0__0__00010101T000000Z") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			return
		}
		if n.String() != s || path.Base(s) != s || path.Clean(s) != s || len(s) > 200 {
			t.Fatalf("%q parses to %+v", s, n)
		}
	})
}

func FuzzParseFileName(f *testing.F) {
	f.Add("flights__12__345__20261129T160000Z-0123456789abcdef.parquet")
	f.Add("../flights__12__345__20261129T160000Z-0123456789abcdef.parquet")
	f.Fuzz(func(t *testing.T, s string) {
		n, short, err := ParseFileName(s)
		if err != nil {
			return
		}
		if n.String()+"-"+short+".parquet" != s || path.Base(s) != s || len(s) > 255 {
			t.Fatalf("%q parses to %+v, %q", s, n, short)
		}
	})
}
