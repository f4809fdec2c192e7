package task

// Query is the question that a task asks about all clients together.
type Query string

// The queries.
const (
	Count     Query = "count"     // How many clients have the property; input 0 or 1.
	Sum       Query = "sum"       // Sum of a real number in Input.Lo..Input.Hi.
	Mean      Query = "mean"      // That sum divided by the number of clients.
	Histogram Query = "histogram" // How many clients fall in each of Input.Bins bins or categories.

	Vector     Query = "vector"     // Sum of vectors of Input.Bins coordinates, each in Input.Lo..Input.Hi.
	VectorMean Query = "vectormean" // Mean of vectors of Input.Bins coordinates with Euclidean norm at most 1.

	Strings Query = "strings" // Which texts of at most Input.Bins bytes are frequent, and how many clients have each.
)

// Shape is the shape of an answer.
type Shape uint8

// The possible shapes.
const (
	Scalar    Shape = iota // One number.
	PerBin                 // One number for each of Input.Bins bins or categories.
	PerVector              // One number for each of Input.Bins coordinates. A client's value is also a vector.
	PerText                // Texts that nobody listed in advance, each with a number.
)

// QueryInfo describes a query and its answer.
type QueryInfo struct {
	Query   Query
	Shape   Shape
	Ranged  bool     // The owner sets Input.Lo and Input.Hi, which bound the value or its coordinates.
	Mean    bool     // The answer is the sum over clients divided by their number.
	Clients bool     // The answer counts clients. Otherwise it has the unit of a client's value.
	Entry   string   // What one entry of the answer is called; empty if the answer is one number.
	Measure string   // What the answer measures, as text for people.
	Options []string // Flags of commands that apply to this query only, besides those of every query.
	// MostBins is the largest Input.Bins whose answer a verifier can hold in memory; 0 for a query without bins.
	MostBins uint64
}

// Queries describes all queries, in the order in which lists show them. Command lines, reports, pages and the demo use
// it.
var Queries = []QueryInfo{
	{Query: Count, Clients: true, Measure: "number of clients who say yes"},
	{Query: Sum, Ranged: true, Measure: "sum over all clients", Options: []string{"range", "no-clip"}},
	{Query: Mean, Ranged: true, Mean: true, Measure: "mean of a client's value", Options: []string{"range", "no-clip"}},
	{Query: Histogram, Shape: PerBin, Ranged: true, Clients: true, Entry: "bin", Measure: "clients by value",
		Options: []string{"range", "no-clip", "bins", "labels"}, MostBins: maxEntries},
	{Query: Vector, Shape: PerVector, Ranged: true, Entry: "coordinate", Measure: "sum of every coordinate",
		Options: []string{"range", "no-clip", "dim", "sparse"}, MostBins: maxEntries},
	{Query: VectorMean, Shape: PerVector, Mean: true, Entry: "coordinate", Measure: "mean of every coordinate",
		Options: []string{"no-clip", "dim"}, MostBins: maxEntries},
	{Query: Strings, Shape: PerText, Clients: true, Entry: "text", Measure: "texts that many clients have",
		Options: []string{"length"}, MostBins: maxLength},
}

// Info returns the description of the query. For an unknown query, the field Query in it is empty.
func (q Query) Info() QueryInfo {
	for _, info := range Queries {
		if info.Query == q {
			return info
		}
	}
	return QueryInfo{}
}

// YesNo reports whether a client's value is 0 or 1. A query about texts is not one.
func (i QueryInfo) YesNo() bool { return i.Shape == Scalar && !i.Ranged }

// Ball reports whether a client's value is a vector of Euclidean norm at most 1.
func (i QueryInfo) Ball() bool { return i.Shape == PerVector && !i.Ranged }
