/** What the example uses of web-vitals; its own declarations fill a folder. */
export interface Metric {
  readonly name: 'CLS' | 'LCP';
  readonly value: number;
}
export declare function onCLS(callback: (metric: Metric) => void): void;
export declare function onLCP(callback: (metric: Metric) => void): void;
