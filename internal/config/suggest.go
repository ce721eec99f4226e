package config

import "strings"

// suggest is the end of a message on an unknown key: the known one that was
// probably meant, or nothing.
func suggest(key string, known map[string][]int) string {
	best, distance := "", 3 // more than two slips is another word
	if len(key) > 64 {
		return ""
	}
	for k := range known {
		n := slips(strings.ToLower(key), strings.ToLower(k))
		if n < distance && n < len(k) || n == distance && k < best {
			best, distance = k, n
		}
	}
	if best == "" {
		return ""
	}
	return "; is it " + best + "?"
}

// slips is the Levenshtein distance in bytes.
func slips(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
