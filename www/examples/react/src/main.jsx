import { StrictMode, useEffect } from 'react';
import { createRoot } from 'react-dom/client';

import { report } from './report.js';

function Visit({ value }) {
  useEffect(() => report(value), [value]); // StrictMode runs it twice, but a visitor reports only once per epoch.
  return <p>The console shows each step.</p>;
}

createRoot(document.getElementById('root')).render(<StrictMode><Visit value={42} /></StrictMode>);
