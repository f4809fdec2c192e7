/** What the example uses of web-vitals; its own declarations fill a folder. */
export interface Metric {
  readonly name: 'CLS' | 'LCP';
  readonly value: number;
}
/** With `reportAllChanges`, the callback gets each value, and not only the last one. */
export interface Options {
  readonly reportAllChanges?: boolean;
}
export declare function onCLS(callback: (metric: Metric) => void, options?: Options): void;
export declare function onLCP(callback: (metric: Metric) => void, options?: Options): void;
