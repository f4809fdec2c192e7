import { StrictMode, useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

import { report } from './report.js';

function Visit() {
  const [said, say] = useState('…');
  useEffect(() => { // StrictMode runs it twice, but a visitor reports only once per epoch.
    report(42).then(() => say('Reported.'), (error) => say(error.message));
  }, []);
  return <p>{said}</p>;
}

createRoot(document.getElementById('root')).render(<StrictMode><Visit /></StrictMode>);
